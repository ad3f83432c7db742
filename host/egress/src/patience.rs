//! A stream that fails if too many bytes are read before the head of an answer is complete.
//!
//! A server may send any number of informational answers (1xx) before the final answer, and the HTTP library reads all
//! of them. This stream limits their size.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream with the number of bytes that may still be read from it.
pub(crate) struct ReadLimited<S> {
    stream: S,
    left: Arc<AtomicUsize>,
}

impl<S> ReadLimited<S> {
    /// Wraps a stream. There is no limit until the returned counter is set.
    pub(crate) fn new(stream: S) -> (Self, Arc<AtomicUsize>) {
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        (Self { stream, left: left.clone() }, left)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadLimited<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        let read = into.filled().len() - before;
        let left = self.left.load(Ordering::Relaxed);
        if left == usize::MAX {
            return Poll::Ready(Ok(()));
        }
        match left.checked_sub(read) {
            Some(left) => {
                self.left.store(left, Ordering::Relaxed);
                Poll::Ready(Ok(()))
            }
            None => Poll::Ready(Err(io::ErrorKind::FileTooLarge.into())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadLimited<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
