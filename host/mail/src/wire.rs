//! The connection to a mail server, in the form that lettre expects.

use lettre::transport::smtp::client::AsyncTokioStream;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

/// The longest reply before TLS, in bytes.
const LONGEST: usize = 16 << 10;
/// The maximum size of all answers of a connection, in bytes.
const ANSWERS: usize = 64 << 10;
/// The greeting, which a server does not repeat after STARTTLS although lettre waits for it.
const GREETING: &[u8] = b"220 ready\r\n";

/// A stream with the address of its other end.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
    peer: SocketAddr,
    /// The bytes that are read before those of the stream.
    ahead: &'static [u8],
    /// The number of bytes that may still be read.
    left: usize,
}

impl<S> Wire<S> {
    pub(crate) const fn new(stream: S, peer: SocketAddr) -> Self {
        Self { stream, peer, ahead: &[], left: ANSWERS }
    }

    /// The stream of a server that has sent its greeting already.
    pub(crate) const fn after_start_tls(stream: S, peer: SocketAddr) -> Self {
        Self { stream, peer, ahead: GREETING, left: ANSWERS }
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin + std::fmt::Debug> AsyncTokioStream for Wire<S> {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            let before = buffer.filled().len();
            let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
            // The library reads a line of any length.
            return match self.left.checked_sub(buffer.filled().len() - before) {
                Some(left) => {
                    self.left = left;
                    polled
                }
                None => Poll::Ready(Err(io::Error::other("its answers are longer than 64 KiB"))),
            };
        }
        let (now, later) = self.ahead.split_at(self.ahead.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.ahead = later;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Sends a command before TLS and reads the reply (RFC 5321, 4.2): all its lines up to the one without a hyphen after
/// the code. Bytes are read one by one, so that none of the TLS handshake is taken.
pub(crate) async fn exchange(tcp: &mut TcpStream, command: &str) -> io::Result<String> {
    tcp.write_all(command.as_bytes()).await?;
    let (mut reply, mut start) = (Vec::new(), 0);
    loop {
        reply.push(tcp.read_u8().await?);
        if reply.last() != Some(&b'\n') {
            if reply.len() < LONGEST {
                continue;
            }
            return Ok(shown(&reply[..200]));
        }
        if reply.get(start + 3) != Some(&b'-') {
            return Ok(shown(&reply));
        }
        start = reply.len();
    }
}

fn shown(reply: &[u8]) -> String {
    String::from_utf8_lossy(reply).trim_end().to_owned()
}
