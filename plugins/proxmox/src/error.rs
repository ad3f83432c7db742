//! Errors: why a part could not be read, and how an operator corrects it.
//!
//! The products report an error in three places: in the HTTP reason phrase (Proxmox VE and Mail Gateway; always for a
//! 401), in `message` or `errors` of a JSON body (the same two products), and as plain text that claims to be JSON
//! (Backup Server). The statuses 595 to 599 are errors of the node behind the server that was asked.
//!
//! Invariant: plugins decide by [`ErrorClass`], never by the text of a code or message.

mod refusal;

use crate::product::Product;
use polliwog_sdk::http::{HttpError, HttpErrorClass, Response};
use polliwog_sdk::{CallError, Failure};
use refusal::{forbidden, redirected, said, unauthorized, wrong_port};

/// The class of an error. Plugins decide by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// No answer in time.
    Timeout,
    /// The time of the poll is over.
    CallOver,
    /// The server that was asked cannot reach the node behind a path.
    NodeUnreachable,
    /// The credentials are not accepted.
    Unauthorized,
    /// The credentials lack a privilege.
    Forbidden,
    /// The server does not know the path.
    NotServed,
    /// The server refuses the request.
    Refused,
    /// The server failed.
    ServerFailed,
    /// The programs of a feature are not installed on the node that was asked. Another node may have them.
    NotInstalled,
    /// The cluster does not use a feature.
    NotConfigured,
    /// Anything else.
    Other,
}

/// Why something could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The class.
    pub class: ErrorClass,
    /// A stable code in snake_case, for programs.
    pub code: String,
    /// One sentence for a person: what is wrong, and what to do.
    pub message: String,
    /// Whether it persists until an operator changes something.
    pub permanent: bool,
    /// Whether the origin did not answer at all, so that another origin may.
    pub no_answer: bool,
    /// How long the server asked not to be asked again.
    pub retry_after_ms: Option<u32>,
}

impl Error {
    fn new(class: ErrorClass, code: &str, message: String) -> Self {
        Self { class, code: code.to_owned(), message, permanent: false, no_answer: false, retry_after_ms: None }
    }

    /// An error of no class that persists until an operator changes something.
    pub fn permanent(code: &str, message: String) -> Self {
        Self { permanent: true, ..Self::new(ErrorClass::Other, code, message) }
    }

    /// Something is not requested for an hour because it did not answer in time.
    pub fn backing_off(why: String) -> Self {
        let message = format!("it is not requested for an hour: {why}");
        Self { no_answer: true, ..Self::new(ErrorClass::Timeout, "timeout", message) }
    }

    /// A request that the server passes on to a node timed out although the server answers others.
    pub(crate) fn node_too_slow(path: &str, message: &str) -> Self {
        let hint =
            "check the load of that node and, in a cluster, the network between it and the server that was asked";
        let path = path.split('?').next().unwrap_or_default();
        Self::new(ErrorClass::NodeUnreachable, "node_unreachable", format!("{path}: {message}; {hint}"))
    }

    /// A request timed out although the server answers others.
    pub(crate) fn server_too_slow(path: &str, message: &str) -> Self {
        let path = path.split('?').next().unwrap_or_default();
        let message = format!("{path}: {message}; the server answers other requests: check its load and its disks");
        Self { no_answer: true, ..Self::new(ErrorClass::Timeout, "timeout", message) }
    }

    /// The host has no answer of an origin.
    pub(crate) fn unanswered(product: Product, base: &str, error: HttpError) -> Self {
        let HttpError { class, code, message, retryable, .. } = error;
        let hint = match class {
            HttpErrorClass::ConnectionRefused | HttpErrorClass::Protocol => wrong_port(product, base),
            HttpErrorClass::Closed if base.starts_with("http://") => wrong_port(product, base),
            HttpErrorClass::Timeout => Some(
                "check that the machine is up and that no firewall blocks the connection; a slow machine needs a longer \
                 timeout: above 30 s, a fifth of it is for the first answer"
                    .to_owned(),
            ),
            HttpErrorClass::ConnectionFailed | HttpErrorClass::Unreachable => {
                Some("check that the machine is up and that no firewall blocks the connection".to_owned())
            }
            HttpErrorClass::Certificate => Some(format!(
                "\"polliwog setup {} {base}\" shows the certificate, and the command that shows the right one on the server",
                product.kind()
            )),
            HttpErrorClass::CallOver => {
                Some("raise the target's timeout, or check which other requests take so long".to_owned())
            }
            HttpErrorClass::BodyTooLarge => Some(format!(
                "[plugins.limits.{}] in the configuration can raise body_bytes and bodies_bytes",
                product.kind()
            )),
            HttpErrorClass::Closed
            | HttpErrorClass::NameLookup
            | HttpErrorClass::Denied
            | HttpErrorClass::InvalidArgument
            | HttpErrorClass::Capture
            | HttpErrorClass::Limit
            | HttpErrorClass::Other => None,
        };
        let message = hint.map_or(message.clone(), |hint| format!("{message}; {hint}"));
        // The other errors hold for every origin: the host refuses the request, or an answer came and is too long.
        let no_answer = matches!(
            class,
            HttpErrorClass::NameLookup
                | HttpErrorClass::ConnectionRefused
                | HttpErrorClass::Unreachable
                | HttpErrorClass::ConnectionFailed
                | HttpErrorClass::Certificate
                | HttpErrorClass::Protocol
                | HttpErrorClass::Closed
                | HttpErrorClass::Timeout
        );
        let class = match class {
            HttpErrorClass::Timeout => ErrorClass::Timeout,
            HttpErrorClass::CallOver => ErrorClass::CallOver,
            _ => ErrorClass::Other,
        };
        Self { class, code, message, permanent: !retryable, no_answer, retry_after_ms: None }
    }

    /// An answer whose status is not 2xx.
    pub(crate) fn answered(product: Product, path: &str, response: &Response) -> Self {
        let status = response.status();
        let said = said(response);
        let quoted = if said.is_empty() { format!("{status}") } else { format!("{status}, {said:?}") };
        let persists = |class, code: &str, message| Self { permanent: true, ..Self::new(class, code, message) };
        let mut error = match status {
            300..=399 => Self::permanent("redirect", redirected(product, response)),
            401 => persists(ErrorClass::Unauthorized, "unauthorized", unauthorized(product, &said, &quoted)),
            403 => persists(ErrorClass::Forbidden, "forbidden", forbidden(product, path, &said, &quoted)),
            404 | 501 => {
                let message = format!(
                    "{path} is not served ({quoted}): check that the server is {} and not older than this plugin supports, \
                     and that the URL is that of its API",
                    product.name()
                );
                persists(ErrorClass::NotServed, "not_served", message)
            }
            595..=599 => {
                let message = format!(
                    "the server that was asked cannot reach the node behind {path} ({quoted}): check that node, and the \
                     network between them"
                );
                Self::new(ErrorClass::NodeUnreachable, "node_unreachable", message)
            }
            408 | 425 | 429 => {
                Self::new(ErrorClass::Other, "too_busy", format!("the server asks for fewer requests ({quoted})"))
            }
            // Backup Server answers 400 to any error that it does not expect; the next request may succeed.
            400 if product == Product::Backup => {
                Self::new(ErrorClass::Refused, "refused", format!("the server refuses {path} ({quoted})"))
            }
            500.. => {
                let journal = product.journal();
                let message = format!("{path} failed on the server ({quoted}): see \"journalctl {journal}\" there");
                Self::new(missing_feature(product, &said).unwrap_or(ErrorClass::ServerFailed), "server_error", message)
            }
            _ => {
                let class = missing_feature(product, &said).unwrap_or(ErrorClass::Refused);
                persists(class, "refused", format!("the server refuses {path} ({quoted})"))
            }
        };
        // A proxy answers with these when the server behind it does not answer.
        error.no_answer = matches!(status, 502..=504);
        error.retry_after_ms = response.retry_after().map(|wait| u32::try_from(wait.as_millis()).unwrap_or(u32::MAX));
        error
    }

    /// A 2xx answer whose body is not what it should be.
    pub(crate) fn unreadable(product: Product, path: &str, body: &[u8], error: &serde_json::Error) -> Self {
        let start = String::from_utf8_lossy(&body[..body.len().min(60)]).trim_start().to_owned();
        if start.starts_with('<') {
            let message = format!(
                "{path} was answered with a web page: the URL is that of a log-in page or a proxy; write the URL of {} \
                 itself, such as https://HOST:{}",
                product.name(),
                product.port()
            );
            return Self::new(ErrorClass::Other, "web_page", message);
        }
        let (code, what) = match error.classify() {
            serde_json::error::Category::Data => ("unexpected_shape", "has another shape than expected"),
            serde_json::error::Category::Eof => ("truncated", "ends in the middle"),
            _ => ("not_json", "is not JSON"),
        };
        let message = format!(
            "the answer to {path} {what} ({error}); it begins {start:?}: check the URL, and any proxy in between"
        );
        Self::new(ErrorClass::Other, code, message)
    }
}

/// Messages of a node without the programs for a feature, and of a cluster that does not use the feature.
const NOT_INSTALLED: &str = "not installed";
const NOT_CONFIGURED: [&str; 2] = ["not initialized", "missing '/etc/pve/ceph.conf'"];

/// Proxmox VE reports a missing feature by the text of the error only.
fn missing_feature(product: Product, said: &str) -> Option<ErrorClass> {
    if product != Product::Ve {
        return None;
    }
    if said.contains(NOT_INSTALLED) {
        return Some(ErrorClass::NotInstalled);
    }
    NOT_CONFIGURED.iter().any(|words| said.contains(words)).then_some(ErrorClass::NotConfigured)
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        let Error { code, message, permanent, retry_after_ms, .. } = error;
        let failure = Failure { retry_after_ms, ..Failure::new(code, message) };
        if permanent { Self::Misconfigured(failure) } else { Self::Transient(failure) }
    }
}
