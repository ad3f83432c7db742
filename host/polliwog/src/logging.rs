//! The log: lines on stderr, which nothing ever waits for.
//!
//! A thread of its own writes. When stderr cannot take a line (its disk is full, its reader is gone, nobody reads the pipe)
//! the line is lost and counted, and the host goes on. The next line that can be written says how many are missing.

use anyhow::Context;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

/// Lines that wait for a slow reader; more are lost.
const LINES: usize = 4096;

/// The log of a process. Dropping it writes the lines that still wait, for at most a second.
pub(crate) struct Log {
    /// Lines that did not fit into the queue.
    surplus: ErrorCounter,
    /// Lines that stderr did not take.
    unwritten: Arc<AtomicU64>,
    _worker: WorkerGuard,
}

impl Log {
    /// Starts the log; `RUST_LOG` says what is logged, else everything from `level` on.
    pub(crate) fn start(level: &str) -> anyhow::Result<Self> {
        let filter = match std::env::var("RUST_LOG") {
            Ok(filter) => EnvFilter::try_new(&filter).with_context(|| format!("RUST_LOG={filter:?}"))?,
            Err(_) => EnvFilter::new(level),
        };
        let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let unwritten = Arc::new(AtomicU64::new(0));
        let tolerant = Tolerant { output: io::stderr(), unwritten: unwritten.clone(), reported: 0 };
        let (writer, worker) = NonBlockingBuilder::default().buffered_lines_limit(LINES).lossy(true).finish(tolerant);
        let surplus = writer.error_counter();
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(writer)
            .with_ansi(colours)
            .with_target(false)
            // It would report its own failures with a print that panics when stderr is gone.
            .log_internal_errors(false)
            .init();
        log_panics();
        Ok(Self { surplus, unwritten, _worker: worker })
    }

    /// Lines that were lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed) + self.surplus.dropped_lines() as u64
    }
}

/// A panic is a line of the log: the default hook writes to stderr itself, and would wait for a pipe that nobody reads.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!("thread {:?} panicked: {panic}\n{backtrace}", thread.name().unwrap_or("unnamed"));
    }));
}

/// Writes whole lines, and counts those that cannot be written instead of failing.
struct Tolerant<W> {
    output: W,
    unwritten: Arc<AtomicU64>,
    /// How many of the lost lines the log already tells of.
    reported: u64,
}

impl<W: Write> Write for Tolerant<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let lost = self.unwritten.load(Ordering::Relaxed);
        if lost > self.reported {
            let note =
                format!("{} lines of this log could not be written and are missing here\n", lost - self.reported);
            if self.output.write_all(note.as_bytes()).is_ok() {
                self.reported = lost;
            }
        }
        if self.output.write_all(line).is_err() {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // What cannot be flushed was counted when it was written.
        let _ = self.output.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes what there is room for.
    struct Disk {
        room: usize,
        content: Vec<u8>,
    }

    impl Write for &mut Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.len() > self.room {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= bytes.len();
            self.content.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_told_of() {
        let unwritten = Arc::new(AtomicU64::new(0));
        let mut disk = Disk { room: 8, content: Vec::new() };
        let write = |disk: &mut Disk, reported: u64, line: &str| {
            let mut log = Tolerant { output: disk, unwritten: unwritten.clone(), reported };
            log.write_all(line.as_bytes()).unwrap();
            log.flush().unwrap();
            (log.reported, unwritten.load(Ordering::Relaxed))
        };
        assert_eq!(write(&mut disk, 0, "first\n"), (0, 0));
        assert_eq!(write(&mut disk, 0, "second\n"), (0, 1));
        assert_eq!(write(&mut disk, 0, "third\n"), (0, 2));
        disk.room = 1000;
        assert_eq!(write(&mut disk, 0, "fourth\n"), (2, 2));
        let written = String::from_utf8(disk.content).unwrap();
        assert!(written.starts_with("first\n2 lines") && written.ends_with("\nfourth\n"), "{written}");
    }
}
