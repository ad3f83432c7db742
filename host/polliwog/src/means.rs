//! Resources of the process: memory, file descriptors, file permissions, thread priorities.

use anyhow::bail;
use config::Config;
use model::Kind;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandbox::Plugin;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

/// Descriptors reserved for our listeners, the database, plugins and the log.
const RESERVE: u64 = 48;
/// The fewest descriptors that the host can run with.
const LEAST: u64 = 64;
/// `mi_option_purge_delay` of mimalloc 3, in milliseconds. The crate has no name for it.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// The fraction (1/n) of the remaining descriptors for connections to pages, API and metrics.
const OWN_LISTENERS: u64 = 4;

/// Makes the allocators return unused memory to the system: the program's own, and that of glibc, which libraries in C
/// use. By default, glibc keeps a pool of memory for each thread, and keeps what a large allocation once needed.
#[allow(unsafe_code, reason = "no crate has a safe function for it")]
pub(crate) fn bound_allocators() {
    // Longer than the pauses between the polls of a busy host: what one poll frees, the next one needs again.
    // SAFETY: it only sets a parameter of the allocator.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 100) };
    #[cfg(target_env = "gnu")]
    {
        /// Pools. Threads seldom allocate in libraries at the same moment.
        const ARENAS: i32 = 2;
        /// Larger allocations, and larger unused ends of a pool, go back to the system at once.
        const LARGE: i32 = 128 << 10;
        // SAFETY: these calls only set parameters of the allocator, and no other thread runs yet.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, ARENAS);
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
        }
    }
}

/// Frees the machine code of built-in plugins that no target or channel uses. Most hosts use a few of them.
pub(crate) fn rest_unused(plugins: &[Plugin], config: &Config) {
    let used: BTreeSet<&Kind> = config.targets.iter().chain(&config.channels).map(|target| &target.kind).collect();
    plugins.iter().filter(|plugin| !used.contains(&plugin.descriptor().kind)).for_each(Plugin::rest);
}

/// Returns unused memory to the system: that of this thread, and that of all threads in libraries in C.
#[allow(unsafe_code, reason = "no crate has a safe function for it")]
pub(crate) fn trim_heap() {
    // SAFETY: it returns unused memory of the allocator, which may happen at any time.
    unsafe { libmimalloc_sys::mi_collect(true) };
    #[cfg(target_env = "gnu")]
    // SAFETY: it returns unused memory of the allocator, which may happen at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns memory to the system that only the start needed: unused heap, and the pages of the files of this program and
/// of its plugins. The system maps a page again when it is used.
#[allow(unsafe_code, reason = "no crate has a safe function for it")]
pub(crate) fn release_start(plugins: &[Plugin]) {
    trim_heap();
    let (Ok(maps), Ok(own)) = (File::open("/proc/self/smaps"), std::fs::read_link("/proc/self/exe")) else { return };
    let images: Vec<Range<usize>> = plugins.iter().map(Plugin::image).collect();
    for Range { start, end } in unmodified(BufReader::new(maps), &own.to_string_lossy(), &images) {
        // SAFETY: the mapping belongs to this program's file or to a plugin that is borrowed here, so it is not removed
        // meanwhile. It is not writable, and none of its pages was modified, so the system reads the same bytes again.
        let _ = unsafe { rustix::mm::madvise(start as *mut _, end - start, rustix::mm::Advice::LinuxDontNeed) };
    }
}

/// Returns the mappings of files that are not writable and have no modified page, from the text of `/proc/self/smaps`:
/// those of `program`, and those within `images`.
///
/// The text is read by lines, because it has about a megabyte: the instance pool has more than a thousand mappings.
fn unmodified(maps: impl BufRead, program: &str, images: &[Range<usize>]) -> Vec<Range<usize>> {
    let (mut found, mut current) = (Vec::new(), None);
    for line in maps.lines().map_while(Result::ok) {
        if let Some(("Anonymous", rest)) = line.split_once(':') {
            if let Some(range) = current.take().filter(|_| rest.trim() == "0 kB") {
                found.push(range);
            }
        } else if let Some((range, rest)) = line.split_once(' ')
            && let Some((begin, end)) = range.split_once('-')
            && let (Ok(begin), Ok(end)) = (usize::from_str_radix(begin, 16), usize::from_str_radix(end, 16))
        {
            let is_read_only = matches!(rest.get(..4), Some("r--p" | "r-xp"));
            let file = rest.find('/').map(|at| &rest[at..]);
            let is_image = images.iter().any(|image| image.start <= begin && end <= image.end);
            let is_known = file.is_some_and(|file| file == program || is_image);
            current = (is_read_only && is_known).then_some(begin..end);
        }
    }
    found
}

/// Raises the soft limit of descriptors to the hard one. Fails if even that is too low to run.
pub(crate) fn raise_descriptors() -> anyhow::Result<()> {
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: found.maximum, maximum: found.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::warn!("cannot raise the limit of file descriptors");
    }
    let descriptors = descriptors();
    if descriptors < LEAST {
        bail!("the limit of {descriptors} file descriptors is below the required {LEAST}: raise it (ulimit -n)");
    }
    Ok(())
}

/// Lowers the priority of the current thread, so that pages, API and metrics yield to polls when the CPU is busy.
pub(crate) fn yield_to_polls() {
    /// A tenth of the weight of a normal thread.
    const NICE: i32 = 10;
    // Without the permission, the thread keeps its priority.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

/// Makes new files readable for their owner only, in any data directory.
pub(crate) fn keep_private() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Most concurrent connections to targets.
pub(crate) fn connections() -> usize {
    let left = descriptors().saturating_sub(RESERVE);
    usize::try_from(left - left / OWN_LISTENERS).unwrap_or(usize::MAX).clamp(8, 1 << 20)
}

/// Most concurrent connections to each of our listeners.
pub(crate) fn served() -> usize {
    let left = descriptors().saturating_sub(RESERVE);
    usize::try_from(left / OWN_LISTENERS / 2).unwrap_or(usize::MAX).clamp(4, 512)
}

pub(crate) fn descriptors() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code, reason = "no crate has a safe function for it")]
    fn the_number_of_the_option_is_that_of_the_purge_delay() {
        // SAFETY: it reads a parameter of the allocator.
        assert_eq!(unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) }, 1000, "its default");
    }

    #[test]
    fn only_mappings_without_modified_pages_are_released() {
        let map = |range: &str, rights: &str, file: &str, anonymous: u32| {
            format!(
                "{range} {rights} 00000000 fe:00 42   {file}\nSize: 8 kB\nAnonymous:   {anonymous} kB\nVmFlags: rd\n"
            )
        };
        let maps = [
            map("1000-3000", "r--p", "/bin/polliwog", 0),
            map("3000-5000", "r-xp", "/bin/polliwog", 0),
            map("5000-6000", "r--p", "/bin/polliwog", 4),
            map("6000-7000", "rw-p", "/bin/polliwog", 0),
            map("7000-8000", "r-xp", "/opt/bin/polliwog", 0),
            map("8000-9000", "r--p", "", 0),
            map("9000-a000", "r-xp", "/data/plugin", 0),
            map("a000-b000", "r--p", "/data/plugin", 4),
            map("b000-c000", "r-xp", "/data/other", 0),
        ];
        let image = 0x9000..0xb000;
        let expected = [0x1000..0x3000, 0x3000..0x5000, 0x9000..0xa000];
        assert_eq!(unmodified(maps.concat().as_bytes(), "/bin/polliwog", &[image]), expected);
        release_start(&[]);
    }
}
