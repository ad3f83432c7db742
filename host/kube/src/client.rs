//! Requests to the API server.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

/// The longest time for a request, without those that watch.
const PATIENCE: Duration = Duration::from_secs(15);
/// The largest answer in bytes: a list of ten thousand deployments of several KB.
const LARGEST: usize = 64 << 20;
/// The largest event of a watch in bytes. The store of a cluster takes objects of 1.5 MB.
const LARGEST_EVENT: usize = 4 << 20;

/// How to reach the cluster.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL of the API server, `https:` or `http:` (for `kubectl proxy`).
    pub url: Url,
    /// The namespace of the resources.
    pub namespace: String,
    /// A file with the bearer token, which is read for each request, because a cluster renews it; `None` for none.
    pub token_file: Option<PathBuf>,
    /// The verification of the server's certificate.
    pub tls: ClientConfig,
}

/// A client with at most one idle connection.
pub(crate) struct Client {
    settings: Settings,
    idle: Option<SendRequest<Full<Bytes>>>,
}

/// An answer of the server that is not a success.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The status; `None` if there was no answer.
    pub status: Option<StatusCode>,
    /// The reason in words.
    pub why: String,
}

impl Refused {
    fn unreachable(why: impl std::fmt::Display) -> Self {
        Self { status: None, why: why.to_string() }
    }
}

impl Client {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, idle: None }
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.settings.namespace
    }

    /// Returns the object of a path.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Value, Refused> {
        self.send(self.request(Method::GET, path, None)?).await
    }

    /// Applies a body to a path by server-side apply, also to fields that another manager owns.
    pub(crate) async fn apply(&mut self, path: &str, manager: &str, body: &Value) -> Result<Value, Refused> {
        let path = format!("{path}?fieldManager={manager}&force=true");
        self.send(self.request(Method::PATCH, &path, Some(body))?).await
    }

    /// Begins to watch a path, on a separate connection.
    pub(crate) async fn watch(&self, path: &str) -> Result<Watch, Refused> {
        let mut connection = self.connect().await?;
        let sent = connection.send_request(self.request(Method::GET, path, None)?);
        let answer = tokio::time::timeout(PATIENCE, sent).await;
        let answer = answer.map_err(|_| Refused::unreachable("the server does not answer"))?;
        let answer = answer.map_err(Refused::unreachable)?;
        if !answer.status().is_success() {
            return Err(refused(answer).await);
        }
        Ok(Watch { body: answer.into_body(), buffer: Vec::new(), _connection: connection })
    }

    fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Request<Full<Bytes>>, Refused> {
        let url = &self.settings.url;
        let (host, prefix) = (&url[url::Position::BeforeHost..url::Position::AfterPort], url.path());
        let path = format!("{}{path}", prefix.trim_end_matches('/'));
        let mut request = Request::builder().method(method).uri(path).header(HOST, host);
        request = request.header(ACCEPT, "application/json");
        if let Some(file) = &self.settings.token_file {
            let token = std::fs::read_to_string(file);
            let token = token.map_err(|error| Refused::unreachable(format!("{}: {error}", file.display())))?;
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.trim()));
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/apply-patch+yaml");
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        request.body(Full::new(body.into())).map_err(Refused::unreachable)
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Value, Refused> {
        let answered = tokio::time::timeout(PATIENCE, self.exchange(request)).await;
        answered.unwrap_or_else(|_| Err(Refused::unreachable("the server does not answer")))
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Value, Refused> {
        let kept = self.idle.take().filter(|kept| !kept.is_closed());
        let mut connection = match kept {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        // The server may have closed a kept connection at this moment: the caller tries again.
        connection.ready().await.map_err(Refused::unreachable)?;
        let answer = connection.send_request(request).await.map_err(Refused::unreachable)?;
        if !answer.status().is_success() {
            return Err(refused(answer).await);
        }
        let body = Limited::new(answer.into_body(), LARGEST).collect().await.map_err(Refused::unreachable)?;
        self.idle = Some(connection);
        serde_json::from_slice(&body.to_bytes()).map_err(|error| Refused::unreachable(format!("the answer: {error}")))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Refused> {
        let connecting = async {
            let url = &self.settings.url;
            let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
            let port = url.port_or_known_default().unwrap_or(443);
            let failed = |error: std::io::Error| Refused::unreachable(format!("{host}:{port}: {error}"));
            let stream = TcpStream::connect((host, port)).await.map_err(failed)?;
            if url.scheme() == "http" {
                return start(stream).await;
            }
            let name = ServerName::try_from(host.to_owned()).map_err(Refused::unreachable)?;
            let connector = TlsConnector::from(Arc::new(self.settings.tls.clone()));
            start(connector.connect(name, stream).await.map_err(failed)?).await
        };
        let connected = tokio::time::timeout(PATIENCE, connecting).await;
        connected.unwrap_or_else(|_| Err(Refused::unreachable("the server cannot be reached")))
    }
}

async fn start(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, Refused> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Refused::unreachable)?;
    // It ends with the sender.
    tokio::spawn(connection);
    Ok(sender)
}

/// The reason of an answer that is not a success: the message of the server's Status object.
async fn refused(answer: Response<Incoming>) -> Refused {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LARGEST_EVENT).collect().await;
    let object: Value = body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok()).unwrap_or_default();
    let message = object["message"].as_str().map_or_else(|| status.to_string(), ToOwned::to_owned);
    Refused { status: Some(status), why: message }
}

/// The events of a watch, one object on each line.
pub(crate) struct Watch {
    body: Incoming,
    buffer: Vec<u8>,
    /// The body ends if it is dropped.
    _connection: SendRequest<Full<Bytes>>,
}

impl Watch {
    /// Returns the next event; `None` if the server ended the watch. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Refused> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let event = serde_json::from_slice(&line);
                return event.map(Some).map_err(|error| Refused::unreachable(format!("an event: {error}")));
            }
            if self.buffer.len() > LARGEST_EVENT {
                return Err(Refused::unreachable(format!("an event has more than {LARGEST_EVENT} bytes")));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.buffer.extend(frame.data_ref().into_iter().flatten()),
                Some(Err(error)) => return Err(Refused::unreachable(error)),
                None => return Ok(None),
            }
        }
    }
}
