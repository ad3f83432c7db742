//! The reason why a connection fails. The client's library says "IO error" for a name that does not exist, a port on
//! which no server listens, and a certificate that is refused.

use crate::link::Link;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Url;

/// The port of a URL without one.
const PORT: u16 = 4222;
/// The longest time for one server.
const PATIENCE: Duration = Duration::from_secs(5);
/// The server's first line is not longer.
const FIRST_LINE: u64 = 64 << 10;

/// Connects to each server as the client does, and returns the reasons why that fails.
pub(crate) async fn diagnose(link: &Link) -> String {
    let mut reasons = Vec::new();
    for url in link.servers() {
        let reason = match tokio::time::timeout(PATIENCE, steps(link, &url)).await {
            Ok(Ok(Login::Accepted)) => format!("{url} did not answer in time, and accepts this host now"),
            Ok(Ok(Login::Ended)) => format!("{url} ends the connection"),
            Ok(Err(why)) => why,
            Err(_) => format!("{url} does not answer: its server hangs, or the network drops what is sent to it"),
        };
        reasons.push(reason);
    }
    reasons.join("; ")
}

/// The end of a login that the server did not refuse.
enum Login {
    Accepted,
    Ended,
}

async fn steps(link: &Link, url: &str) -> Result<Login, String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let (host, port) = (url.host_str().unwrap_or_default(), url.port().unwrap_or(PORT));
    let stream = connect(link, (host, port)).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            format!("nothing listens at {host}:{port}: start the broker there, or correct url in [fleet]")
        }
        _ => format!("{host}:{port} ({error}): check url in [fleet], the network and any firewall"),
    })?;
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    let read = (&mut stream).take(FIRST_LINE).read_until(b'\n', &mut line).await;
    if read.is_err() || !line.starts_with(b"INFO ") {
        return Err(format!("{host}:{port} is not a NATS server, or it refuses this connection"));
    }
    match &link.tls {
        Some(tls) if url.scheme() == "tls" => {
            let stream = handshake(stream.into_inner(), host, tls.clone()).await?;
            log_in(link, BufReader::new(stream)).await
        }
        _ => log_in(link, stream).await,
    }
}

async fn connect(link: &Link, to: (&str, u16)) -> std::io::Result<TcpStream> {
    let Some(local) = link.local else { return TcpStream::connect(to).await };
    let socket = if local.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind((local, 0).into())?;
    let mut addresses = tokio::net::lookup_host(to).await?;
    socket.connect(addresses.next().ok_or(std::io::ErrorKind::NotFound)?).await
}

async fn handshake(stream: TcpStream, host: &str, tls: ClientConfig) -> Result<TlsStream<TcpStream>, String> {
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let done = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
    done.map_err(|error| {
        let found = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match found {
            // The verifier's own words.
            Some(rustls::Error::InvalidCertificate(CertificateError::Other(why))) => {
                format!("{host}: {}", why.0)
            }
            _ => format!("TLS with {host} fails: {error}"),
        }
    })
}

/// Logs in as the client does. A server that refuses that says so in one line, and ends the connection.
async fn log_in(link: &Link, mut stream: BufReader<impl AsyncRead + AsyncWrite + Unpin>) -> Result<Login, String> {
    let mut about = json!({ "verbose": false, "pedantic": false, "name": link.name, "lang": "rust", "version": "0" });
    if let Some((user, password)) = &link.credentials {
        (about["user"], about["pass"]) = (user.as_str().into(), password.as_str().into());
    }
    let sent = stream.get_mut().write_all(format!("CONNECT {about}\r\nPING\r\n").as_bytes()).await;
    let mut line = String::new();
    let read = (&mut stream).take(FIRST_LINE).read_line(&mut line).await;
    if sent.is_ok() && read.is_ok() && line.starts_with("-ERR") && line.contains("Authorization") {
        return Err(match &link.credentials {
            None => {
                "the broker refuses hosts without credentials: name this host's file of `polliwog fleet credentials` \
                     as [fleet] credentials"
                    .to_owned()
            }
            Some((user, _)) => format!(
                "the broker refuses the user {user:?}: it was revoked, its password is an older one, or the broker was not \
                 restarted with the accounts.conf that names it; this host reads [fleet] credentials at its start"
            ),
        });
    }
    Ok(if line.starts_with("PONG") { Login::Accepted } else { Login::Ended })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn reason(url: String) -> String {
        let keys = crate::seal::Keys::None;
        diagnose(&Link { url, credentials: None, keys, tls: None, local: None, name: String::new(), seed: 0 }).await
    }

    #[tokio::test]
    async fn the_reason_names_the_step_that_failed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("nats://{}", listener.local_addr().unwrap());
        let cases = [
            ("INFO {}\r\n", "ends the connection"),
            ("INFO {}\r\nPONG\r\n", "accepts this host now"),
            ("INFO {}\r\n-ERR 'Authorization Violation'\r\n", "refuses hosts without credentials"),
            ("SSH-2.0\r\n", "not a NATS server"),
            ("", "not a NATS server"),
        ];
        for (first, expected) in cases {
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(first.as_bytes()).await.unwrap();
            };
            let (found, ()) = tokio::join!(reason(url.clone()), serve);
            assert!(found.contains(expected), "{first:?}: {found}");
        }
        drop(listener);
        assert!(reason(url).await.contains("start the broker there"));
        assert!(reason("nats://no-such-host.invalid".to_owned()).await.contains("no-such-host.invalid:4222 ("));
    }
}
