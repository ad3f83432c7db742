//! The allocator of a plugin.
//!
//! Each poll has a new instance that lives for microseconds, so the allocator is chosen for speed: the one of wasi-libc
//! takes a fifth of the instructions of a poll. The first allocations come from a static area, because the host needs a
//! system call to grow the memory.

#![allow(unsafe_code)]

use core::alloc::Layout;
use core::arch::wasm32::memory_grow;
use core::mem::MaybeUninit;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::cell::TalcSyncCell;
use talc::source::Source;
use talc::wasm::WasmBinning;

/// Size of the first area. A poll of a small body needs less.
const FIRST: usize = 64 << 10;
/// Size of a page of WebAssembly.
const PAGE: usize = 64 << 10;
/// Upper bound of the bytes that the allocator adds to an allocation.
const OVERHEAD: usize = 1 << 10;

static mut AREA: [MaybeUninit<u8>; FIRST] = [MaybeUninit::uninit(); FIRST];

#[global_allocator]
static ALLOCATOR: TalcSyncCell<Memory, WasmBinning> = TalcSyncCell::new_wasm(Memory { is_started: false, grown: 0 });

/// The static area first, then more of the memory.
#[derive(Debug)]
struct Memory {
    is_started: bool,
    /// Pages added so far. Each step adds at least a quarter of them, so that a large body does not grow page by page.
    grown: usize,
}

// SAFETY: it neither allocates nor uses the allocator other than through `talc`.
unsafe impl Source for Memory {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let (start, size) = if talc.source.is_started {
            let needed = (layout.size() + layout.align() + OVERHEAD).div_ceil(PAGE);
            let (pages, end) = grow(needed.max(talc.source.grown / 4), needed).ok_or(())?;
            talc.source.grown += pages;
            ((end * PAGE) as *mut u8, pages * PAGE)
        } else {
            talc.source.is_started = true;
            ((&raw mut AREA).cast::<u8>(), FIRST)
        };
        // SAFETY: only the allocator uses the area, and the memory was added for it alone.
        unsafe { talc.claim(start, size) }.map(|_| ()).ok_or(())
    }
}

/// Adds `wanted` pages, or `needed` ones if there is no room for as many. Returns how many, and the end before.
fn grow(wanted: usize, needed: usize) -> Option<(usize, usize)> {
    [wanted, needed].into_iter().map(|pages| (pages, memory_grow::<0>(pages))).find(|(_, end)| *end != usize::MAX)
}
