//! The allocator of a plugin.
//!
//! Each poll has a new instance that lives for microseconds, so the allocator is chosen for speed: the one of wasi-libc
//! takes a fifth of the instructions of a poll. The first allocations are taken from a static area in order, and
//! only the last of them can be returned to it. Most polls need no more. When the area is used up, a general
//! allocator follows. It has a static area too, because the host needs a system call to grow the memory.

#![allow(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::arch::wasm32::memory_grow;
use core::cell::Cell;
use core::mem::MaybeUninit;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::cell::TalcSyncCell;
use talc::source::Source;
use talc::wasm::WasmBinning;

/// Size of the area that is taken in order. A poll of a small body needs less.
const ORDERED: usize = 64 << 10;
/// Size of the first area of the general allocator.
const FIRST: usize = 64 << 10;
/// How many times the needed memory is added.
const ROOM: usize = 4;
/// Maximum number of pages that are added beyond the needed ones for that reason.
const MOST_ROOM: usize = 96;
/// Size of a page of WebAssembly.
const PAGE: usize = 64 << 10;
/// Upper bound of the bytes that the allocator adds to an allocation.
const OVERHEAD: usize = 1 << 10;

static mut ORDERED_AREA: [MaybeUninit<u8>; ORDERED] = [MaybeUninit::uninit(); ORDERED];
static mut AREA: [MaybeUninit<u8>; FIRST] = [MaybeUninit::uninit(); FIRST];

#[global_allocator]
static ALLOCATOR: Allocator =
    Allocator { used: Cell::new(0), general: TalcSyncCell::new_wasm(Memory { is_started: false, grown: 0 }) };

/// The area that is taken in order, then the general allocator.
struct Allocator {
    /// The bytes of the area that are in use.
    used: Cell<usize>,
    general: TalcSyncCell<Memory, WasmBinning>,
}

// SAFETY: a component has one thread.
unsafe impl Sync for Allocator {}

impl Allocator {
    /// Returns the position of an allocation in the area; `None` if it is not from there.
    fn position(pointer: *mut u8) -> Option<usize> {
        let position = pointer.addr().wrapping_sub((&raw const ORDERED_AREA).addr());
        (position < ORDERED).then_some(position)
    }
}

// SAFETY: each allocation is a part of the area that no other one has: those in use lie below `used`. All others are
// those of the general allocator.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let area = (&raw mut ORDERED_AREA).cast::<u8>();
        let start = (area.addr() + self.used.get()).next_multiple_of(layout.align()) - area.addr();
        if layout.size() > ORDERED.saturating_sub(start) {
            // SAFETY: the caller's layout.
            return unsafe { self.general.alloc(layout) };
        }
        self.used.set(start + layout.size());
        // SAFETY: the allocation ends within the area.
        unsafe { area.add(start) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        match Self::position(pointer) {
            Some(start) if start + layout.size() == self.used.get() => self.used.set(start),
            Some(_) => {}
            // SAFETY: the general allocator returned it.
            None => unsafe { self.general.dealloc(pointer, layout) },
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(start) = Self::position(pointer) else {
            // SAFETY: the general allocator returned it.
            return unsafe { self.general.realloc(pointer, layout, size) };
        };
        if start + layout.size() == self.used.get() && size <= ORDERED - start {
            self.used.set(start + size);
            return pointer;
        }
        if size <= layout.size() {
            return pointer;
        }
        // SAFETY: the caller guarantees that the alignment and the new size form a layout.
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !moved.is_null() {
            // SAFETY: both have at least the old size, and they do not overlap, because both are in use.
            unsafe { core::ptr::copy_nonoverlapping(pointer, moved, layout.size()) };
        }
        moved
    }
}

/// The static area first, then more of the memory.
#[derive(Debug)]
struct Memory {
    is_started: bool,
    /// Pages added so far. Each step adds at least a quarter of them, and several times what is needed, so that a long
    /// list grows in place: its copies would touch new pages, which cost more than pages that are never used.
    grown: usize,
}

// SAFETY: it neither allocates nor uses the allocator other than through `talc`.
unsafe impl Source for Memory {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let (start, size) = if talc.source.is_started {
            let needed = (layout.size() + layout.align() + OVERHEAD).div_ceil(PAGE);
            let with_room = (needed * ROOM).min(needed + MOST_ROOM);
            let (pages, end) = grow(with_room.max(talc.source.grown / 4), needed).ok_or(())?;
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
