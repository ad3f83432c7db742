//! The log's lines, written without blocking the host.
//!
//! A separate thread writes the lines. When the output does not accept a line (the disk is full, the pipe is closed or
//! not read), the line is dropped and counted, and the host continues. The next successful line reports the number of
//! missing lines.

use crate::log_ring::LogRing;
use model::LogPage;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Most queued lines. Further lines are dropped.
const LINES: usize = 4096;
/// Longest time to write the queued lines at the end.
const LAST: Duration = Duration::from_secs(1);

/// The log of a process. Dropping it writes the queued lines, for at most one second.
#[derive(Debug)]
pub struct Log {
    lines: LogLines,
    /// Receives a message when every line is written.
    written: Mutex<Receiver<()>>,
}

/// The queue of lines; adding a line never blocks. (tracing-appender is not used: it prints if it cannot shut down, and
/// panics if that output is not read.)
#[derive(Clone, Debug)]
pub struct LogLines {
    queue: Arc<Mutex<Option<SyncSender<Vec<u8>>>>>,
    latest: Arc<Mutex<LogRing>>,
    lost: Arc<AtomicU64>,
}

impl Log {
    /// Starts the thread that writes lines to `output`.
    ///
    /// # Errors
    /// If the system starts no further thread.
    pub fn writing_to(output: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, waiting) = sync_channel::<Vec<u8>>(LINES);
        let (done, written) = channel();
        let lost = Arc::new(AtomicU64::new(0));
        let mut tolerant = Tolerant { output, unwritten: lost.clone(), reported: 0 };
        let write = move || {
            waiting.into_iter().for_each(|line| tolerant.write(&line));
            let _ = done.send(());
        };
        std::thread::Builder::new().name("log".to_owned()).spawn(write)?;
        let lines = LogLines { queue: Arc::new(Mutex::new(Some(queue))), latest: Arc::default(), lost };
        Ok(Self { lines, written: Mutex::new(written) })
    }

    /// Returns the queue; each write to it is one line.
    pub fn lines(&self) -> &LogLines {
        &self.lines
    }

    /// Returns at most `limit` of the latest lines: those after the line with a number, oldest first; or the newest.
    pub fn page(&self, after: Option<u64>, limit: usize) -> LogPage {
        self.lines.latest.lock().unwrap_or_else(PoisonError::into_inner).page(after, limit)
    }

    /// Returns the number of lines dropped so far.
    pub fn lost(&self) -> u64 {
        self.lines.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        drop(self.lines.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let _ = self.written.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LAST);
    }
}

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.as_ref().is_none_or(|queue| queue.try_send(line.to_vec()).is_err()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes lines, and counts lines that cannot be written instead of failing.
struct Tolerant<W> {
    output: W,
    unwritten: Arc<AtomicU64>,
    /// The number of dropped lines that the log has already reported.
    reported: u64,
}

impl<W: Write> Tolerant<W> {
    fn write(&mut self, line: &[u8]) {
        let lost = self.unwritten.load(Ordering::Relaxed);
        if lost > self.reported {
            let note =
                format!("{} lines of this log could not be written and are missing here\n", lost - self.reported);
            if self.output.write_all(note.as_bytes()).is_ok() {
                self.reported = lost;
            }
        }
        if self.output.write_all(line).and_then(|()| self.output.flush()).is_err() {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when its free space is used up.
    struct Disk {
        room: usize,
        content: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.len() > self.room {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= bytes.len();
            self.content.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_reported() {
        let unwritten = Arc::new(AtomicU64::new(0));
        let disk = Disk { room: 8, content: Vec::new() };
        let mut log = Tolerant { output: disk, unwritten: unwritten.clone(), reported: 0 };
        for line in ["first\n", "second\n", "third\n"] {
            log.write(line.as_bytes());
        }
        assert_eq!(unwritten.load(Ordering::Relaxed), 2);
        log.output.room = 1000;
        log.write(b"fourth\n");
        let written = String::from_utf8(log.output.content).unwrap();
        assert!(written.starts_with("first\n2 lines") && written.ends_with("\nfourth\n"), "{written}");
        assert_eq!((log.reported, unwritten.load(Ordering::Relaxed)), (2, 2));
    }

    /// A pipe without a reader.
    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_that_is_not_read_does_not_block_the_writer() {
        let (_open, stuck) = channel();
        let log = Log::writing_to(Stuck(stuck)).unwrap();
        let mut writer = log.lines.clone();
        for _ in 0..LINES + 100 {
            writer.write_all(b"line\n").unwrap();
        }
        assert!(log.lost() >= 99, "{}", log.lost());
    }
}
