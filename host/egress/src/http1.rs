//! HTTP/1 connections. The HTTP library's buffers exist only while a request is in flight.
//!
//! The HTTP library keeps a task, buffers and queues for each connection, about 20 KB. Most connections are idle most
//! of the time. So an idle connection is only its stream. Each request has a new instance of the library on that
//! stream, which the request's task runs.

use crate::head;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// Maximum size of the headers of one answer in bytes.
pub(crate) const HEADER_BYTES: usize = 64 * 1024;
/// Maximum number of bytes until the head of an answer is complete. This includes the head itself and any informational
/// answers (1xx) before it, whose number is not limited by HTTP.
const BEFORE_HEAD: usize = 1 << 20;

/// Sends the requests of a connection.
pub(crate) type Sender = http1::SendRequest<Full<Bytes>>;

/// The parts of a head that the HTTP library cannot represent.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    /// The names of header lines in lower case, and their values.
    pub headers: Vec<(String, String)>,
    /// The reason phrase.
    pub reason: Option<String>,
}

/// The parts of the latest head.
pub(crate) type Shared = Arc<Mutex<Apart>>;

/// The stream of a connection. It rewrites odd heads of answers before the HTTP library reads them. Reading fails
/// after too many bytes before a head is complete: a server may send any number of informational answers (1xx) before
/// the final one, and the HTTP library reads all of them.
pub(crate) struct Stream {
    stream: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    /// `None` behind the head.
    head: Option<Arriving>,
    /// Bytes that were read and that the HTTP library has not got yet, and how many of them it has.
    ready: (Vec<u8>, usize),
    apart: Shared,
    /// Whether the last write or flush was not complete.
    is_blocked: bool,
}

/// The beginning of a head that is not complete.
#[derive(Default)]
struct Arriving {
    bytes: Vec<u8>,
    /// No head ends before this place.
    searched: usize,
    /// The number of bytes of earlier heads.
    before: usize,
}

impl Stream {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self::new(Either::Left(stream))
    }

    pub(crate) fn tls(stream: Box<TlsStream<TcpStream>>) -> Self {
        Self::new(Either::Right(stream))
    }

    fn new(stream: Either<TcpStream, Box<TlsStream<TcpStream>>>) -> Self {
        Self { stream, head: None, ready: Default::default(), apart: Arc::default(), is_blocked: false }
    }

    /// Takes what arrived of a head. Returns the bytes that the HTTP library may read, if the head is complete.
    fn take(&mut self, arrived: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let Some(arriving) = &mut self.head else { return Ok(Some(arrived.to_vec())) };
        arriving.bytes.extend_from_slice(arrived);
        let unreadable = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        head::check_beginning(&arriving.bytes).map_err(unreadable)?;
        while let Some(end) = head::end(&arriving.bytes, &mut arriving.searched) {
            if end > HEADER_BYTES {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let found = head::rewritten(&arriving.bytes[..end]).map_err(unreadable)?;
            let mut rest = arriving.bytes.split_off(end);
            if found.is_informational {
                *arriving = Arriving { bytes: rest, searched: 0, before: arriving.before + end };
                continue;
            }
            let apart = Apart { headers: found.apart, reason: found.reason };
            *self.apart.lock().unwrap_or_else(PoisonError::into_inner) = apart;
            self.head = None;
            let mut ready = found.head;
            ready.append(&mut rest);
            return Ok(Some(ready));
        }
        if arriving.bytes.len() + arriving.before > BEFORE_HEAD {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(None)
    }

    /// Returns whether the server has closed the idle connection, or has sent something although no request is in
    /// flight. What it has sent is lost: the connection cannot be used again.
    pub(crate) fn is_over(&mut self) -> bool {
        match &mut self.stream {
            Either::Left(stream) => {
                let read = stream.try_read(&mut [0]);
                !read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
            // This also processes messages of TLS, such as session tickets. The runtime's budget for a task limits how
            // many. A connection counts as open if the budget is used up.
            Either::Right(stream) => {
                let mut byte = [0];
                let read = Pin::new(stream).poll_read(&mut no_waker(), &mut ReadBuf::new(&mut byte));
                read.is_ready()
            }
        }
    }

    /// Notes whether a write or flush was complete, and returns its result.
    fn note<T>(&mut self, result: Poll<T>) -> Poll<T> {
        self.is_blocked = result.is_pending();
        result
    }

    /// Prepares the connection for one request.
    ///
    /// # Errors
    /// None in practice: nothing is sent yet.
    pub(crate) async fn begin(mut self) -> hyper::Result<(Sender, Driver)> {
        self.head = Some(Arriving::default());
        let apart = self.apart.clone();
        *apart.lock().unwrap_or_else(PoisonError::into_inner) = Apart::default();
        let mut settings = http1::Builder::new();
        settings.max_header_size(HEADER_BYTES);
        let (sender, connection) = settings.handshake(TokioIo::new(self)).await?;
        Ok((sender, Driver { connection: Some(connection), apart }))
    }
}

/// Closes a TLS session, so that the server does not report a broken connection. What cannot be sent at once is not
/// sent.
impl Drop for Stream {
    fn drop(&mut self) {
        if let Either::Right(stream) = &mut self.stream {
            let _ = Pin::new(stream).poll_shutdown(&mut no_waker());
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let (ready, given) = &mut this.ready;
            if !ready.is_empty() {
                let count = (ready.len() - *given).min(into.remaining());
                into.put_slice(&ready[*given..*given + count]);
                *given += count;
                if *given == ready.len() {
                    this.ready = Default::default();
                }
                return Poll::Ready(Ok(()));
            }
            let before = into.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(context, into))?;
            let arrived = &into.filled()[before..];
            // Most heads arrive as a whole, and conform to the standard.
            let is_plain = this.head.as_ref().is_none_or(|arriving| {
                arriving.bytes.is_empty()
                    && head::end(arrived, &mut 0).is_some_and(|end| head::is_plain(&arrived[..end]))
            });
            if is_plain || arrived.is_empty() {
                this.head = None;
                return Poll::Ready(Ok(()));
            }
            let ready = this.take(arrived)?;
            into.set_filled(before);
            this.ready = (ready.unwrap_or_default(), 0);
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.note(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.note(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Reads and writes a connection while a request is in flight. The connection is closed on drop.
pub(crate) struct Driver {
    /// `None` when the connection is over. It is dropped then, so that the request fails if it has no answer yet.
    connection: Option<http1::Connection<TokioIo<Stream>, Full<Bytes>>>,
    apart: Shared,
}

impl Driver {
    /// Returns the parts of the head that the HTTP library cannot represent. They are there once it has the head.
    pub(crate) fn apart(&self) -> Shared {
        self.apart.clone()
    }

    /// Waits for `work`, which uses the sender of the connection, and meanwhile reads and writes.
    pub(crate) async fn run<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            self.advance(context);
            work.as_mut().poll(context)
        })
        .await
    }

    /// Lets `work`, which uses the sender of the connection, go on with what has arrived. Returns whether it is over.
    pub(crate) fn continues_to_end<T>(&mut self, mut work: Pin<&mut impl Future<Output = T>>) -> bool {
        // The library hands over a part of a body on demand, and then says that it was the last one.
        (0..4).any(|_| {
            self.advance(&mut no_waker());
            work.as_mut().poll(&mut no_waker()).is_ready()
        })
    }

    /// Returns the stream after a whole answer. `None` if it cannot be used again.
    pub(crate) fn finish(mut self, sender: Sender) -> Option<Stream> {
        // Nothing is waited for. The stream also forgets the waker of the request's task here, which would keep the
        // memory of the task.
        let mut context = no_waker();
        self.advance(&mut context);
        // It is ready for another request only if the answer is complete and the server keeps the connection open.
        if !sender.is_ready() {
            return None;
        }
        drop(sender);
        let mut connection = self.connection?;
        match connection.poll_without_shutdown(&mut context) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) | Poll::Pending => return None,
        }
        let parts = connection.into_parts();
        let stream = parts.io.into_inner();
        // A server may answer before it has read the whole request. The HTTP library forgets the rest of that request.
        let is_over = parts.read_buf.is_empty() && stream.ready.0.is_empty();
        (is_over && !stream.is_blocked).then_some(stream)
    }

    fn advance(&mut self, context: &mut Context<'_>) {
        if self.connection.as_mut().is_some_and(|connection| connection.poll_without_shutdown(context).is_ready()) {
            self.connection = None;
        }
    }
}

/// Returns a context for polls that wake no task.
fn no_waker() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
