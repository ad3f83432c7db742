//! A server that answers with recorded bodies from a directory.
//!
//! There are two types of files:
//!
//! - The name of a *body* is the path that it answers, with `_` for `/`: `cluster_resources.json`,
//!   `nodes_node1_status__from-a-friend.json` (the part after `__` is a comment), `cluster_nextid-http400.json` (with a
//!   status). The file must be in a folder `pve`, `pbs` or `pmg`. A simulated product answers all other paths. Names of
//!   nodes, datastores and guests in the file name match every name.
//! - A *recording*, which `polliwog poll --record` writes, answers only the requests that it contains. If it contains
//!   several answers to a request, they are used in turn. A recorded failure is answered with 596 or 502.
//!
//! Each file has its own URL, for example `http://127.0.0.1:PORT/pve/cluster_resources/api2/json/...`. `/` lists all
//! files.

use crate::listen::{DemoError, Now, bind};
use crate::proxmox;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::ext::ReasonPhrase;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::Instant;

/// The default port.
pub const REPLAY_PORT: u16 = 7414;
/// Files of this size in bytes and larger files are skipped.
const LARGEST: u64 = 64 << 20;
/// Maximum depth of folders that are searched.
const DEPTH: usize = 4;
/// Parts of a path after which any name matches.
const ANY_AFTER: [&str; 7] = ["nodes", "datastore", "qemu", "lxc", "storage", "tasks", "replication"];

/// The served files by name.
pub struct Replayed(BTreeMap<String, File>);

enum File {
    /// The answer to one path.
    Body { path: Vec<String>, status: u16, text: String },
    /// The answers to several paths.
    Recording(Vec<Answered>),
}

/// The recorded answers to one method, path and query.
struct Answered {
    method: String,
    path: String,
    responses: Vec<Recorded>,
    /// The number of requests so far.
    requests: AtomicUsize,
}

impl Answered {
    fn next(&self) -> &Recorded {
        &self.responses[self.requests.fetch_add(1, Ordering::Relaxed) % self.responses.len()]
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Recorded {
    status: u16,
    reason: String,
    body: Option<String>,
    /// The body in base64 if it is not text.
    body_base64: Option<String>,
}

#[derive(Deserialize)]
struct Exchanges {
    exchanges: Vec<Exchange>,
}

#[derive(Deserialize)]
struct Exchange {
    request: RecordedRequest,
    response: Option<Recorded>,
    error: Option<RecordedError>,
}

#[derive(Deserialize)]
struct RecordedError {
    #[serde(default)]
    class: ErrorClass,
    #[serde(default)]
    message: String,
}

/// The kind of a recorded error, as far as a forwarding server distinguishes it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ErrorClass {
    Timeout,
    #[default]
    #[serde(other)]
    Other,
}

impl RecordedError {
    /// Converts a recorded failure to the answer of a forwarding server.
    fn into_gateway_error(self) -> Recorded {
        let status = match self.class {
            ErrorClass::Timeout => 596,
            ErrorClass::Other => 502,
        };
        Recorded { status, reason: self.message, ..Recorded::default() }
    }
}

#[derive(Deserialize)]
struct RecordedRequest {
    #[serde(default = "get")]
    method: String,
    url: String,
}

fn get() -> String {
    "GET".to_owned()
}

impl Replayed {
    /// Reads a directory. The error is one sentence.
    pub fn read(dir: &Path) -> Result<Self, String> {
        let mut files = BTreeMap::new();
        gather(dir, dir, DEPTH, &mut files)?;
        if files.is_empty() {
            return Err(format!("{} contains no .json or .txt file", dir.display()));
        }
        Ok(Self(files))
    }

    /// Returns each name with the path that the file answers. The path is `None` for a recording.
    pub fn names(&self) -> impl Iterator<Item = (&str, Option<String>)> {
        self.0.iter().map(|(name, file)| {
            let path = match file {
                File::Body { path, .. } => Some(format!("/{}", path.join("/"))),
                File::Recording(_) => None,
            };
            (name.as_str(), path)
        })
    }

    /// Returns a router that serves the files.
    pub fn router(self, start: Instant, now: Now) -> Router {
        let files = Arc::new(self);
        Router::new().fallback(async move |request: Request| files.answer(request, start, now()).await)
    }

    async fn answer(&self, request: Request, start: Instant, now: i64) -> Response {
        let path = request.uri().path().to_owned();
        if path == "/" {
            let all: Vec<Value> = self.names().map(|(name, path)| json!({ "name": name, "answers": path })).collect();
            return axum::Json(all).into_response();
        }
        let found = self.0.iter().find_map(|(name, file)| {
            let rest = path.strip_prefix('/')?.strip_prefix(name.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then_some((name, file, rest))
        });
        match found {
            None => (StatusCode::NOT_FOUND, "there is no file with this name; GET / lists all files").into_response(),
            Some((_, File::Recording(answers), rest)) => {
                let requested =
                    request.uri().query().map_or_else(|| rest.to_owned(), |query| format!("{rest}?{query}"));
                // A query may contain the time of the poll. Then only the path is compared.
                let plain = |path: &str| path.split('?').next().is_some_and(|path| path.ends_with(rest));
                let method = request.method().as_str();
                let of_method = || answers.iter().filter(|answered| answered.method == method);
                // Compare only the end of the recorded path, because a proxy may have added a prefix.
                let exact = of_method().find(|answered| answered.path.ends_with(&requested));
                match exact.or_else(|| of_method().find(|answered| plain(&answered.path))) {
                    Some(answered) => respond(answered.next()),
                    None => {
                        (StatusCode::NOT_IMPLEMENTED, format!("the recording does not contain {method} {requested}"))
                            .into_response()
                    }
                }
            }
            Some((name, File::Body { path, status, text }, rest)) => {
                let requested = rest.strip_prefix("/api2/json").unwrap_or(rest);
                if answers(path, requested) {
                    return respond(&Recorded { status: *status, body: Some(text.clone()), ..Recorded::default() });
                }
                let product = name.split('/').find(|part| ["pve", "pbs", "pmg"].contains(part)).unwrap_or("pve");
                proxmox::answer(within(request, product, rest), start, now).await
            }
        }
    }
}

/// Redirects a request to the scenario `healthy` of a product.
fn within(request: Request, product: &str, rest: &str) -> Request {
    let (mut parts, body) = request.into_parts();
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    if let Ok(uri) = format!("/{product}/healthy{rest}{query}").parse() {
        parts.uri = uri;
    }
    Request::from_parts(parts, body)
}

fn respond(recorded: &Recorded) -> Response {
    let decoded = || STANDARD.decode(recorded.body_base64.as_deref()?).ok();
    let body = recorded.body.clone().map(String::into_bytes).or_else(decoded).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(recorded.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = header::HeaderValue::from_static("application/json;charset=UTF-8");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    if let Ok(reason) = ReasonPhrase::try_from(recorded.reason.clone().into_bytes()) {
        response.extensions_mut().insert(reason);
    }
    response
}

fn gather(root: &Path, dir: &Path, depth: usize, files: &mut BTreeMap<String, File>) -> Result<(), String> {
    let unreadable = |path: &Path, error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    for entry in fs::read_dir(dir).map_err(|error| unreadable(dir, error))? {
        let path = entry.map_err(|error| unreadable(dir, error))?.path();
        let metadata = fs::metadata(&path).map_err(|error| unreadable(&path, error))?;
        if metadata.is_dir() && depth > 0 {
            gather(root, &path, depth - 1, files)?;
        }
        let wanted = path.extension().is_some_and(|extension| extension == "json" || extension == "txt");
        if !metadata.is_file() || !wanted || metadata.len() >= LARGEST {
            continue;
        }
        let text = fs::read(&path).map_err(|error| unreadable(&path, error))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let name = path.strip_prefix(root).unwrap_or(&path).with_extension("");
        let name: Vec<String> =
            name.iter().map(|part| part.to_string_lossy().replace([' ', '?', '#', '%'], "-")).collect();
        files.insert(name.join("/"), File::of(name.last().map_or("", String::as_str), text));
    }
    Ok(())
}

impl File {
    fn of(stem: &str, text: String) -> Self {
        if let Ok(Exchanges { exchanges }) = serde_json::from_str(&text) {
            let mut answers: Vec<Answered> = Vec::new();
            for Exchange { request: RecordedRequest { method, url }, response, error } in exchanges {
                let Some(response) = response.or_else(|| error.map(RecordedError::into_gateway_error)) else {
                    continue;
                };
                let url = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
                let path = url.find('/').map_or("/", |at| &url[at..]).to_owned();
                match answers.iter_mut().find(|known| known.method == method && known.path == path) {
                    Some(known) => known.responses.push(response),
                    None => {
                        answers.push(Answered {
                            method,
                            path,
                            responses: vec![response],
                            requests: AtomicUsize::new(0),
                        });
                    }
                }
            }
            return Self::Recording(answers);
        }
        let (endpoint, _) = stem.split_once("__").unwrap_or((stem, ""));
        let status = stem.rsplit_once("-http").and_then(|(_, status)| status.get(..3)?.parse().ok()).unwrap_or(200);
        Self::Body { path: endpoint.split('_').map(str::to_owned).collect(), status, text }
    }
}

/// Returns whether a file for `path` answers `requested`. The last part of `path` may have a suffix, for example
/// `snapshots-empty`.
fn answers(path: &[String], requested: &str) -> bool {
    let requested: Vec<&str> = requested.split('/').skip(1).collect();
    requested.len() == path.len()
        && requested.iter().enumerate().all(|(index, part)| {
            let own = &path[index];
            let any = index > 0 && ANY_AFTER.contains(&requested[index - 1]);
            let more = index + 1 == requested.len() && own.strip_prefix(part).is_some_and(|rest| rest.starts_with('-'));
            own == part || any || more
        })
}

/// Serves a directory until the process ends. `ready` is called with the address. Port 0 selects a free port.
pub async fn replay(files: Replayed, port: u16, now: Now, ready: impl FnOnce(SocketAddr)) -> Result<(), DemoError> {
    let listener = bind(port).await?;
    let failed = |error: std::io::Error| DemoError::at(port, error.to_string());
    ready(listener.local_addr().map_err(failed)?);
    axum::serve(listener, files.router(Instant::now(), now)).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_determine_the_answered_paths() {
        let path = |stem: &str| match File::of(stem, "{}".to_owned()) {
            File::Body { path, status, .. } => (path, status),
            File::Recording(_) => panic!("it has no exchanges"),
        };
        for (stem, asked, expected) in [
            ("cluster_resources__a", "/cluster/resources", true),
            ("cluster_resources", "/cluster/status", false),
            ("nodes_node1_storage__a", "/nodes/pve1/storage", true),
            ("nodes_node1_storage_local_status", "/nodes/pve1/storage/other/status", true),
            ("nodes", "/nodes/pve1", false),
            ("admin_datastore_x_snapshots-empty", "/admin/datastore/y/snapshots", true),
            ("cluster_backup-info_not-backed-up", "/cluster/backup-info/not-backed-up", true),
        ] {
            assert_eq!(answers(&path(stem).0, asked), expected, "{stem} {asked}");
        }
        assert_eq!(path("cluster_nextid__go-proxmox-pve7x-2-http400").1, 400);
    }

    #[test]
    fn recordings_answer_recorded_requests_in_turn() {
        let text = r#"{"kind":"pve","target":{},"exchanges":[
            {"request":{"method":"GET","url":"https://a:8006/api2/json/version?x=1"},"response":{"status":595,"reason":"no route","body":"b"}},
            {"request":{"method":"GET","url":"https://a:8006/gone"},
             "error":{"class":"timeout","code":"timeout","message":"m","retryable":true}},
            {"request":{"method":"POST","url":"https://a:8006/api2/json/version?x=1"},"response":{"status":200,"bodyBase64":"/w=="}},
            {"request":{"method":"GET","url":"https://a:8006/api2/json/version?x=1"},"response":{"status":200,"body":"c"}}]}"#;
        let File::Recording(answers) = File::of("x", text.to_owned()) else { panic!("it has exchanges") };
        let [get, gone, post] = &answers[..] else { panic!("{} answers", answers.len()) };
        assert_eq!((gone.next().status, gone.next().reason.as_str()), (596, "m"));
        assert_eq!((get.method.as_str(), get.path.as_str()), ("GET", "/api2/json/version?x=1"));
        let statuses: Vec<u16> = (0..3).map(|_| get.next().status).collect();
        assert_eq!(statuses, [595, 200, 595], "the answers repeat in turn");
        assert_eq!((post.method.as_str(), post.next().body_base64.as_deref()), ("POST", Some("/w==")));
    }
}
