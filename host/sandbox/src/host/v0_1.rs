//! `polliwog:plugin@0.1`: the generated types, and the host's implementation of its imports.

use super::State;
use crate::cache::CacheError;
use egress::ErrorClass;
use model::clean;
use std::time::Duration;
use wasmtime::component::{Component, ComponentExportIndex, HasSelf, Instance, InstancePre, Linker};
use wasmtime::{Result, Store};

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated {
    wasmtime::component::bindgen!({
        inline: "
            package polliwog:host;

            /// All interfaces. A plugin has some of them.
            world everything {
                include polliwog:plugin/imports@0.1.0;
                export polliwog:plugin/definition@0.1.0;
                export polliwog:plugin/notifier@0.1.0;
                export polliwog:plugin/poller@0.1.0;
                export polliwog:plugin/setup@0.1.0;
            }
        ",
        path: "../../wit",
        imports: { default: async | trappable },
        exports: { default: async },
    });
}

pub(crate) use generated::exports::polliwog::plugin::{definition, notifier, poller, setup};
pub(crate) use generated::polliwog::plugin::{cache, clock, http, log, types};

impl types::Host for State {}

/// The result of the function `poll`.
pub(crate) type Outcome = std::result::Result<poller::Report, types::Error>;

/// Adds the interfaces of the contract that plugins import.
pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> Result<()> {
    generated::Everything::add_to_linker::<State, HasSelf<State>>(linker, |state| state)
}

/// Returns the place of the function `poll` in a component; `None` if it has none.
pub(crate) fn poll_export(component: &Component) -> Option<ComponentExportIndex> {
    let interface = component.get_export_index(None, "polliwog:plugin/poller@0.1.0")?;
    component.get_export_index(Some(&interface), "poll")
}

/// Fails if the type of the function `poll` differs from the contract.
pub(crate) fn check_poll(store: &mut Store<State>, instance: &Instance, poll: &ComponentExportIndex) -> Result<()> {
    instance.get_typed_func::<(&types::Endpoint,), (Outcome,)>(store, poll).map(drop)
}

/// Instantiates a plugin and calls its function `poll`. The generated bindings would check the types of all functions
/// of an instance. They were checked when the plugin was loaded.
pub(crate) async fn poll(
    pre: &InstancePre<State>,
    export: &ComponentExportIndex,
    (store, target): (&mut Store<State>, &types::Endpoint),
) -> Result<Outcome> {
    let instance = pre.instantiate_async(&mut *store).await?;
    let poll = instance.get_typed_func::<(&types::Endpoint,), (Outcome,)>(&mut *store, export)?;
    poll.call_async(&mut *store, (target,)).await.map(|(result,)| result)
}

impl http::Host for State {
    async fn reference(&mut self, name: String) -> Result<String> {
        // A pure call sends nothing: its text does not depend on a random number.
        Ok(self.session.as_ref().map_or_else(|| format!("${{{name}}}"), |session| session.reference(&name)))
    }

    async fn has_secret(&mut self, name: String) -> Result<bool> {
        Ok(self.session.as_ref().is_some_and(|session| session.has_secret(&name)))
    }

    async fn forget_secret(&mut self, name: String) -> Result<()> {
        if let Some(session) = &self.session {
            session.forget_secret(&name);
        }
        Ok(())
    }

    async fn fetch(&mut self, request: http::Request) -> Result<Result<http::Response, http::HttpError>> {
        Ok(answer(State::fetch(self, request.try_into()).await))
    }

    async fn fetch_all(
        &mut self,
        requests: Vec<http::Request>,
    ) -> Result<Vec<Result<http::Response, http::HttpError>>> {
        let requests = requests.into_iter().map(TryInto::try_into).collect();
        Ok(State::fetch_all(self, requests).await.into_iter().map(answer).collect())
    }
}

impl cache::Host for State {
    async fn get(&mut self, key: String) -> Result<Option<Vec<u8>>> {
        Ok(self.cache_get(&key))
    }

    async fn set(&mut self, key: String, value: Vec<u8>, ttl_ms: u32) -> Result<Result<(), cache::CacheError>> {
        let set = self.cache_set(&key, value, Duration::from_millis(ttl_ms.into()));
        Ok(set.map_err(|error| match error {
            CacheError::InvalidArgument => cache::CacheError::InvalidArgument,
            CacheError::Full => cache::CacheError::Full,
            CacheError::Unavailable => cache::CacheError::Unavailable,
        }))
    }

    async fn remove(&mut self, key: String) -> Result<()> {
        self.cache_remove(&key);
        Ok(())
    }
}

impl clock::Host for State {
    async fn now(&mut self) -> Result<i64> {
        Ok(self.now.as_millis())
    }
}

impl log::Host for State {
    async fn write(&mut self, level: log::Level, message: String) -> Result<()> {
        let level = match level {
            log::Level::Trace => tracing::Level::TRACE,
            log::Level::Debug => tracing::Level::DEBUG,
            log::Level::Info => tracing::Level::INFO,
            log::Level::Warn => tracing::Level::WARN,
            log::Level::Error => tracing::Level::ERROR,
        };
        State::log(self, level, &message);
        Ok(())
    }
}

/// Refuses a request with an attribute that this version does not know, because its plugin relies on it.
fn without_extra(extra: &[types::Extra]) -> Result<(), egress::Error> {
    match extra.first() {
        None => Ok(()),
        Some(unknown) => Err(egress::Error::BadRequest(format!(
            "it has the attribute {:?}, which this version of Polliwog does not know: update Polliwog",
            clean(&unknown.key, 64)
        ))),
    }
}

impl TryFrom<http::Request> for egress::Request {
    type Error = egress::Error;

    fn try_from(request: http::Request) -> Result<Self, egress::Error> {
        without_extra(&request.extra)?;
        Ok(Self {
            method: match request.method {
                http::Method::Get => egress::Method::Get,
                http::Method::Head => egress::Method::Head,
                http::Method::Post => egress::Method::Post,
                http::Method::Put => egress::Method::Put,
                http::Method::Patch => egress::Method::Patch,
                http::Method::Delete => egress::Method::Delete,
                http::Method::Options => egress::Method::Options,
            },
            path: request.path,
            headers: request.headers.into_iter().map(|header| (header.name, header.value)).collect(),
            body: request.body,
            body_encoding: match request.body_encoding {
                http::BodyEncoding::Raw => egress::BodyEncoding::Raw,
                http::BodyEncoding::Form => egress::BodyEncoding::Form,
                http::BodyEncoding::Json => egress::BodyEncoding::Json,
            },
            captures: request.captures.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            timeout: request.timeout_ms.map(|ms| Duration::from_millis(ms.into())),
        })
    }
}

impl TryFrom<http::Capture> for egress::Capture {
    type Error = egress::Error;

    fn try_from(capture: http::Capture) -> Result<Self, egress::Error> {
        without_extra(&capture.extra)?;
        let source = match capture.source {
            http::CaptureSource::JsonPointer(pointer) => egress::CaptureSource::JsonPointer(pointer),
            http::CaptureSource::Header(name) => egress::CaptureSource::Header(name),
            http::CaptureSource::Cookie(name) => egress::CaptureSource::Cookie(name),
        };
        Ok(Self { name: capture.name, source, ttl: Duration::from_millis(capture.ttl_ms.into()) })
    }
}

fn answer(result: Result<egress::Response, egress::Error>) -> Result<http::Response, http::HttpError> {
    let response = result.map_err(|error| http::HttpError {
        class: match error.class() {
            ErrorClass::Refused => http::HttpErrorClass::Refused,
            ErrorClass::NameLookup => http::HttpErrorClass::NameLookup,
            ErrorClass::ConnectionRefused => http::HttpErrorClass::ConnectionRefused,
            ErrorClass::ConnectionFailed => http::HttpErrorClass::ConnectionFailed,
            ErrorClass::Certificate => http::HttpErrorClass::Certificate,
            ErrorClass::Protocol => http::HttpErrorClass::Protocol,
            ErrorClass::Closed => http::HttpErrorClass::Closed,
            ErrorClass::Timeout => http::HttpErrorClass::Timeout,
            ErrorClass::CallOver => http::HttpErrorClass::CallOver,
            ErrorClass::BodyTooLarge => http::HttpErrorClass::BodyTooLarge,
            ErrorClass::NotRecorded | ErrorClass::Other => http::HttpErrorClass::Other,
        },
        code: error.code().to_owned(),
        message: error.to_string(),
        retryable: error.retryable(),
    })?;
    let timing = response.timing;
    Ok(http::Response {
        status: response.status,
        reason: response.reason,
        headers: response.headers.into_iter().map(|(name, value)| http::Header { name, value }).collect(),
        body: response.body,
        timing: http::Timing {
            dns_ms: timing.dns_ms,
            connect_ms: timing.connect_ms,
            tls_ms: timing.tls_ms,
            first_byte_ms: timing.first_byte_ms,
            total_ms: timing.total_ms,
        },
        tls: response.tls.map(|certificate| http::TlsInfo {
            fingerprint: certificate.fingerprint,
            subject: certificate.subject,
            issuer: certificate.issuer,
            not_before: certificate.not_before,
            not_after: certificate.not_after,
        }),
    })
}
