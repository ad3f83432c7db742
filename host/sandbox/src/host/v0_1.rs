//! `polliwog:poller@0.1`: the generated types, and the host's implementation of its imports.

use super::State;
use crate::plugin::Role;
use egress::ErrorClass;
use std::time::Duration;
use wasmtime::component::{Component, ComponentExportIndex};
use wasmtime::{Result, Store};

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated {
    wasmtime::component::bindgen!({
        world: "plugin",
        path: "../../wit",
        imports: { default: async | trappable },
        exports: { default: async },
    });
}

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated_notifier {
    wasmtime::component::bindgen!({
        world: "notifier-plugin",
        path: "../../wit",
        with: {
            "polliwog:poller/cache": super::generated::polliwog::poller::cache,
            "polliwog:poller/http": super::generated::polliwog::poller::http,
            "polliwog:poller/log": super::generated::polliwog::poller::log,
            "polliwog:poller/types": super::generated::polliwog::poller::types,
        },
        imports: { default: async | trappable },
        exports: { default: async },
    });
}

pub(crate) use generated::polliwog::poller::{cache, http, log, types};
pub(crate) use generated::{Plugin, PluginPre};
pub(crate) use generated_notifier::exports::polliwog::poller::notifier;
pub(crate) use generated_notifier::{NotifierPlugin, NotifierPluginPre};
pub(crate) use types::Descriptor;

impl types::Host for State {}

/// The result of the function `poll`.
pub(crate) type Outcome = std::result::Result<types::Report, types::PollError>;

/// Returns the place of the function `poll` in a component; `None` if it has none.
pub(crate) fn poll_export(component: &Component) -> Option<ComponentExportIndex> {
    let interface = component.get_export_index(None, "polliwog:poller/poller@0.1.0")?;
    component.get_export_index(Some(&interface), "poll")
}

/// Instantiates a plugin and calls its function `poll`. The generated bindings would check the types of all functions
/// of an instance. They were checked when the plugin was loaded.
pub(crate) async fn poll(
    pre: &PluginPre<State>,
    export: &ComponentExportIndex,
    (store, target): (&mut Store<State>, &types::Target),
) -> Result<Outcome> {
    let instance = pre.instance_pre().instantiate_async(&mut *store).await?;
    let poll = instance.get_typed_func::<(&types::Target,), (Outcome,)>(&mut *store, export)?;
    poll.call_async(&mut *store, (target,)).await.map(|(result,)| result)
}

/// Returns the descriptor of a notifier in the form of a poller's, and its role.
pub(crate) fn of_notifier(found: notifier::NotifierDescriptor) -> (Descriptor, Role) {
    /// The timeout of an attempt of a channel without a configured timeout.
    const TIMEOUT_MS: u32 = 15_000;
    let descriptor = Descriptor {
        kind: found.kind,
        title: found.title,
        version: found.version,
        summary: found.summary,
        settings_schema: found.settings_schema,
        secrets: found.secrets,
        default_interval_ms: 0,
        default_timeout_ms: TIMEOUT_MS,
        setup: None,
    };
    (descriptor, Role::Notifier { needs_every_alert: found.needs_every_alert })
}

impl http::Host for State {
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
        Ok(answer(State::fetch(self, request.into()).await))
    }

    async fn fetch_all(
        &mut self,
        requests: Vec<http::Request>,
    ) -> Result<Vec<Result<http::Response, http::HttpError>>> {
        let requests = requests.into_iter().map(Into::into).collect();
        Ok(State::fetch_all(self, requests).await.into_iter().map(answer).collect())
    }
}

impl cache::Host for State {
    async fn get(&mut self, key: String) -> Result<Option<Vec<u8>>> {
        Ok(self.cache_get(&key))
    }

    async fn set(&mut self, key: String, value: Vec<u8>, ttl_ms: u32) -> Result<Result<(), String>> {
        Ok(self.cache_set(&key, value, Duration::from_millis(ttl_ms.into())))
    }

    async fn remove(&mut self, key: String) -> Result<()> {
        self.cache_remove(&key);
        Ok(())
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

impl From<http::Request> for egress::Request {
    fn from(request: http::Request) -> Self {
        Self {
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
            captures: request.captures.into_iter().map(Into::into).collect(),
            timeout: request.timeout_ms.map(|ms| Duration::from_millis(ms.into())),
        }
    }
}

impl From<http::Capture> for egress::Capture {
    fn from(capture: http::Capture) -> Self {
        let source = match capture.source {
            http::CaptureSource::JsonPointer(pointer) => egress::CaptureSource::JsonPointer(pointer),
            http::CaptureSource::Header(name) => egress::CaptureSource::Header(name),
            http::CaptureSource::Cookie(name) => egress::CaptureSource::Cookie(name),
        };
        Self { name: capture.name, source, ttl: Duration::from_millis(capture.ttl_ms.into()) }
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
            ErrorClass::PollOver => http::HttpErrorClass::PollOver,
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
