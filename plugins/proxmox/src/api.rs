//! Finds the origin of a target that answers, and sends requests to it.
//!
//! An origin that does not answer is skipped, and for a minute it is tried last, so that not every poll waits for it.
//! The first origin that answers is used, whatever it answers: another origin would refuse with 401 or 403 as well, and
//! asking there would lock an account faster.

use crate::diagnostics::{Diagnostics, Listed};
use crate::error::{Error, ErrorClass};
use crate::expiring::now;
use crate::memory::{Memory, PluginMemory};
use crate::origins::{ROOT, SilentOrigin, base, in_order};
use crate::product::Product;
use crate::reply::{read, text};
use polliwog_sdk::http::{Certificate, HttpError, HttpErrorClass, Request, Response, send_all};
use polliwog_sdk::lenient::{Field, Number, Text};
use polliwog_sdk::{Dependency, Endpoint, Status};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::time::Duration;

/// Time for the first answer of an origin, or a fifth of the poll's time if that is more. A refused log-in alone takes
/// Proxmox 3 s. Milliseconds.
const PROBE_MS: u32 = 6_000;
/// A request may take this fraction of the poll's time, by default 10 s: a request that hangs must leave time for the
/// rest. A node waits 30 s for another node.
const REQUEST: u32 = 3;
/// The fraction of a poll's time for finding an origin that answers.
const PROBING: f64 = 0.7;
/// How long an origin that did not answer is tried last.
const SILENT: Duration = Duration::from_secs(60);

/// The API of an origin that answers.
#[derive(Clone, Debug)]
pub struct Api {
    product: Product,
    base: String,
    origin: usize,
    probe_ms: u32,
    request_ms: u32,
    /// Whether requests may take long by themselves. Then a timeout does not mean that the node behind a path is down.
    patient: bool,
    header: Option<(&'static str, String)>,
    certificate: Option<Certificate>,
    version: [(&'static str, String); 3],
}

/// The API of an origin that answers.
pub struct Connected {
    /// The API.
    pub api: Api,
    /// The dependency `api`.
    pub dependency: Dependency,
    /// The answers to the first paths, in their order.
    pub answers: Vec<Answer>,
}

/// Whether an origin answered at the last poll.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contact {
    Known,
    New,
}

/// The answer to `/version`.
#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    version: Field<Text>,
    #[serde(default)]
    release: Field<Text>,
    #[serde(default)]
    repoid: Field<Text>,
}

impl Version {
    /// Returns the fields by name.
    fn fields(&self) -> [(&'static str, String); 3] {
        [("version", &self.version), ("release", &self.release), ("repoid", &self.repoid)]
            .map(|(name, field)| (name, field.get().map(|Text(text)| text.clone()).unwrap_or_default()))
    }

    /// Returns the version as people write it, `9.1.6`. Backup Server reports it in two parts.
    fn text(&self, product: Product) -> Option<String> {
        let version = &self.version.get()?.0;
        match (product, self.release.get()) {
            (Product::Backup, Some(Text(release))) => Some(format!("{version}.{release}")),
            _ => Some(version.clone()),
        }
    }
}

/// Finds the first origin that answers, in the operator's order.
///
/// `first` are the paths that the poll requests in any case. They are requested together with `/version`, which saves a
/// round trip, if the origin answered at the last poll. Any other origin gets only the request for `/version`, because
/// it may be down or refuse the credentials.
///
/// `authorize` adds the credentials to the API of an origin that is about to be tried.
///
/// Fails if no origin answers, or if the first one that answers refuses.
pub fn connect<M: PluginMemory>(
    target: &Endpoint,
    product: Product,
    memory: &mut Memory<M>,
    first: &[&str],
    authorize: impl Fn(Api, &mut Memory<M>) -> Result<Api, Error>,
) -> Result<Connected, Error> {
    let mut passed_over: Vec<(String, Error)> = Vec::new();
    let origins = in_order(target, &memory.silent);
    let (probe_ms, request_ms) = limits(target.timeout_ms, origins.len());
    for (origin, base) in origins {
        let api = Api {
            product,
            base: base.clone(),
            origin,
            probe_ms,
            request_ms,
            patient: false,
            header: None,
            certificate: None,
            version: Default::default(),
        };
        let contact = match memory.answered.take() {
            Some(answered) if answered == base => Contact::Known,
            Some(_) | None => Contact::New,
        };
        match authorize(api, memory).and_then(|api| api.first_requests(first, contact)) {
            Ok(connected) => {
                memory.silent.remove(&base);
                let dependency = with_fallback_warning(connected.dependency, target, &base, (&passed_over, memory));
                memory.answered = Some(base);
                return Ok(Connected { dependency, ..connected });
            }
            Err(error) if error.no_answer => {
                let silent = SilentOrigin { since: now(), why: error.message.clone() };
                memory.silent.set(base.as_str(), silent, now(), SILENT);
                passed_over.push((base, error));
            }
            Err(error) if error.class == ErrorClass::CallOver => {
                passed_over.push((base, error));
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Err(none_answers(passed_over))
}

impl Api {
    /// Adds a header to each request: the credentials.
    #[must_use]
    pub fn with_header(self, name: &'static str, value: impl Into<String>) -> Self {
        Self { header: Some((name, value.into())), ..self }
    }

    /// Allows requests to take half as long again.
    #[must_use]
    pub fn patient(&self) -> Self {
        Self { patient: true, request_ms: self.request_ms / 2 * 3, ..self.clone() }
    }

    /// The time for the first answer of this origin.
    pub fn probe(&self) -> Duration {
        Duration::from_millis(self.probe_ms.into())
    }

    /// When the certificate of this origin expires, in seconds since 1970; `None` if the connection is not encrypted.
    pub fn certificate_ends(&self) -> Option<f64> {
        self.certificate.as_ref().map(|tls| tls.not_after as f64 / 1000.0)
    }

    /// The SHA-256 of the certificate of this origin, in lower-case hex digits; `None` if the connection is not
    /// encrypted.
    pub fn fingerprint(&self) -> Option<&str> {
        self.certificate.as_ref().map(|tls| tls.fingerprint.as_str())
    }

    /// The fields `version`, `release` and `repoid` of `/version`.
    pub fn version(&self) -> &[(&'static str, String); 3] {
        &self.version
    }

    /// The product.
    pub fn product(&self) -> Product {
        self.product
    }

    /// The index of this origin in the target: 0 for its URL, 1 for the first of the others.
    pub fn origin(&self) -> usize {
        self.origin
    }

    /// A request for a path of the API, such as `/version`, without credentials.
    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(method, format!("{}{ROOT}{path}", self.base))
    }

    /// A GET with credentials.
    pub fn get(&self, path: &str) -> Request {
        let request = self.request("GET", path).timeout(Duration::from_millis(self.request_ms.into()));
        match &self.header {
            Some((name, value)) => request.header(*name, value.clone()),
            None => request,
        }
    }

    /// Sends a request. Fails if there is no answer.
    pub fn send(&self, request: Request) -> Result<Response, Error> {
        request.send().map_err(|error| Error::unanswered(self.product, &self.base, error))
    }

    /// Reads the answer to a path.
    pub fn read<T: DeserializeOwned>(&self, path: &str, response: &Response) -> Result<T, Error> {
        read(self.product, path, response, &text(response))
    }

    /// Sends a GET for each of these paths at once.
    pub fn ask<const N: usize>(&self, paths: [&str; N]) -> [Answer; N] {
        let mut answers = self.ask_all(paths.map(str::to_owned).into()).into_iter();
        std::array::from_fn(|_| answers.next().expect("an answer to each"))
    }

    /// Sends a GET for each of these paths at once.
    pub fn ask_all(&self, paths: Vec<String>) -> Vec<Answer> {
        let results = send_all(paths.iter().map(|path| self.get(path)).collect());
        paths.into_iter().zip(results).map(|(path, result)| self.answer(path, result)).collect()
    }
}

impl Api {
    /// Requests the version and the first paths: at once if the origin answered at the last poll, else one after the
    /// other.
    fn first_requests(self, first: &[&str], contact: Contact) -> Result<Connected, Error> {
        let together = if contact == Contact::Known { first } else { &[] };
        let version = self.get("/version").timeout(self.probe());
        let requests = std::iter::once(version).chain(together.iter().map(|path| self.get(path)));
        let mut results = send_all(requests.collect()).into_iter();
        let response = results.next().expect("an answer to each");
        let response = response.map_err(|error| Error::unanswered(self.product, &self.base, error))?;
        let version: Version = self.read("/version", &response)?;
        let certificate = response.tls().and_then(|session| session.leaf().cloned());
        let dependency = dependency(&self, &version, &response);
        let api = Self { certificate, version: version.fields(), ..self };
        let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        let answers = if contact == Contact::Known {
            paths(first).into_iter().zip(results).map(|(path, result)| api.answer(path, result)).collect()
        } else {
            api.ask_all(paths(first))
        };
        Ok(Connected { api, dependency, answers })
    }

    fn answer(&self, path: String, result: Result<Response, HttpError>) -> Answer {
        let result = result.map_err(|error| self.passed_on(&path, error));
        Answer { product: self.product, path, limit_ms: self.request_ms, result, replaced: OnceCell::new() }
    }

    /// The error for a missing answer of an origin that answered before. A node waits 30 s for the node that it passes
    /// a request on to, which is longer than the poll waits.
    fn passed_on(&self, path: &str, error: HttpError) -> Error {
        if error.class == HttpErrorClass::Timeout {
            let of_node = self.product != Product::Backup && path.starts_with("/nodes/") && !self.patient;
            return if of_node {
                Error::node_too_slow(path, &error.message)
            } else {
                Error::server_too_slow(path, &error.message)
            };
        }
        Error::unanswered(self.product, &self.base, error)
    }
}

/// The answer to a path, or the reason why it is missing.
#[derive(Clone)]
pub struct Answer {
    product: Product,
    path: String,
    /// The time limit of the request.
    limit_ms: u32,
    result: Result<Response, Error>,
    /// The body without the bytes that are not UTF-8, if it has any and was read.
    replaced: OnceCell<String>,
}

impl Answer {
    /// Reads the content.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, Error> {
        let response = self.result.as_ref().map_err(Clone::clone)?;
        read(self.product, self.named(), response, &text(response))
    }

    /// Returns the size of the body in bytes, and the time of the request. Without an answer, the time is the limit.
    pub fn cost(&self) -> (usize, Duration) {
        match &self.result {
            Ok(response) => (response.body().len(), response.latency()),
            Err(_) => (0, Duration::from_millis(self.limit_ms.into())),
        }
    }

    /// Returns the number of items that the path lists. The answer may hold only some of them.
    pub fn total(self, diagnostics: &mut Diagnostics) -> Result<Option<f64>, Error> {
        #[derive(Deserialize)]
        struct Counted {
            #[serde(default)]
            total: Field<Number>,
        }

        let (product, path, response) = (self.product, self.path, self.result?);
        let text = text(&response);
        read::<IgnoredAny>(product, &path, &response, &text)?;
        // The field is next to `data`.
        let counted = serde_json::from_str(&text).unwrap_or(Counted { total: Field::Absent });
        Ok(diagnostics.number(&counted.total, || format!("total of {path}")))
    }

    /// Reads a list. Items that are not objects are dropped, with a warning.
    pub fn list<T: DeserializeOwned>(self, diagnostics: &mut Diagnostics) -> Result<Vec<T>, Error> {
        self.collect::<T, Vec<T>>(diagnostics)
    }

    /// Like [`Answer::list`], for items that borrow their texts from the body, and for a collection that keeps less of
    /// each item than the list has.
    pub fn collect<'a, T: Deserialize<'a>, C: Default + Extend<T>>(
        &'a self,
        diagnostics: &mut Diagnostics,
    ) -> Result<C, Error> {
        let response = self.result.as_ref().map_err(Clone::clone)?;
        let text = match text(response) {
            Cow::Borrowed(text) => text,
            Cow::Owned(text) => self.replaced.get_or_init(|| text),
        };
        Ok(read::<Listed<T, C>>(self.product, self.named(), response, text)?.checked_items(diagnostics, &self.path))
    }

    /// The path for messages, without its query.
    fn named(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

/// Returns the time for the first answer of an origin and the time for one request, in milliseconds. Each origin gets
/// its share of the poll's time, and enough is left for the other requests.
fn limits(timeout_ms: u32, origins: usize) -> (u32, u32) {
    let share = (f64::from(timeout_ms) * PROBING / origins as f64) as u32;
    (share.min(PROBE_MS.max(timeout_ms / 5)), timeout_ms / REQUEST)
}

fn dependency(api: &Api, version: &Version, response: &Response) -> Dependency {
    let product = api.product.name();
    let description = match version.text(api.product) {
        Some(version) => format!("{product} {version} at {}", api.base),
        None => format!("{product} at {}", api.base),
    };
    let kind = match api.product {
        Product::Ve => "pve-api",
        Product::Backup => "pbs-api",
        Product::Mail => "pmg-api",
    };
    Dependency::ok("api").with_kind(kind).with_description(description).with_latency(response.latency())
}

/// Adds a warning if the first origin was skipped.
fn with_fallback_warning<M: PluginMemory>(
    dependency: Dependency,
    target: &Endpoint,
    asked: &str,
    (passed_over, memory): (&[(String, Error)], &Memory<M>),
) -> Dependency {
    let first = base(&target.url);
    if asked == first {
        return dependency;
    }
    let why = match passed_over.iter().find(|(base, _)| *base == first) {
        Some((_, error)) => error.message.clone(),
        None => memory.silent.get(&first, now()).map(|silent| silent.why.clone()).unwrap_or_default(),
    };
    let message = format!("{first} does not answer, and {asked} is used instead: {why}");
    Dependency { status: Status::Warning, error_message: Some(message), ..dependency }
}

fn none_answers(mut passed_over: Vec<(String, Error)>) -> Error {
    if passed_over.len() == 1
        && let Some((_, error)) = passed_over.pop()
    {
        return error;
    }
    // One origin that may answer again is worth another try, whatever the errors of the others are.
    let permanent = passed_over.iter().all(|(_, error)| error.permanent);
    let retry_after_ms = passed_over.iter().filter_map(|(_, error)| error.retry_after_ms).min();
    let each: Vec<String> = passed_over.iter().map(|(base, error)| format!("{base}: {}", error.message)).collect();
    let message = format!("none of {} origins answers. {}", each.len(), each.join(". "));
    let Error { class, code, .. } = passed_over.swap_remove(0).1;
    Error { class, code, message, permanent, no_answer: true, retry_after_ms }
}

#[cfg(test)]
mod tests;
