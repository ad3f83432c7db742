//! `polliwog:plugin@0.1`: the generated types, and the host's implementation of its imports.

use super::State;
use crate::cache::CacheError;
use crate::convert;
use crate::stored::{StoreError, Stored};
use egress::{ErrorClass, Exchanged};
use model::{Timestamp, clean};
use std::time::Duration;
use wasmtime::Result;
use wasmtime::component::{HasSelf, Linker};

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
                export polliwog:plugin/session@0.1.0;
                export polliwog:plugin/setup@0.1.0;
            }
        ",
        path: "../../wit",
        imports: { default: async | trappable },
        exports: { default: async },
    });
}

pub(crate) use generated::exports::polliwog::plugin::{definition, notifier, poller, session, setup};
pub(crate) use generated::polliwog::plugin::{cache, clock, http, log, progress, store, tls, types};

impl types::Host for State {}

impl tls::Host for State {}

/// Adds the interfaces of the contract that plugins import.
pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> Result<()> {
    generated::Everything::add_to_linker::<State, HasSelf<State>>(linker, |state| state)
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
            session.forget_secret(&name).await;
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

    async fn tls_of(&mut self, exchange: u32) -> Result<Option<tls::TlsSession>> {
        Ok(match &self.session {
            Some(session) => session.tls_of(exchange).await.map(Into::into),
            None => None,
        })
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
        Ok(self.clock.now.as_millis())
    }

    async fn utc_offset_minutes(&mut self, at: i64) -> Result<i32> {
        Ok(self.clock.zone.offset_minutes(Timestamp::from_millis(at)))
    }

    async fn time_zone(&mut self) -> Result<String> {
        Ok(self.clock.zone.name().to_owned())
    }

    async fn remaining_ms(&mut self) -> Result<u32> {
        Ok(u32::try_from(self.clock.remaining().as_millis()).unwrap_or(u32::MAX))
    }
}

impl progress::Host for State {
    async fn sent(&mut self, fingerprint: String) -> Result<()> {
        self.record(fingerprint, None).await;
        Ok(())
    }

    async fn refused(&mut self, fingerprint: String, reason: types::Failure) -> Result<()> {
        let failure = convert::failure(types::Error::Permanent(reason));
        self.record(fingerprint, Some(failure)).await;
        Ok(())
    }
}

impl store::Host for State {
    async fn get(&mut self, key: String) -> Result<Option<Vec<u8>>> {
        Ok(self.stored.as_ref().and_then(|stored| stored.get(&key)))
    }

    async fn set(&mut self, key: String, value: Vec<u8>) -> Result<Result<(), store::StoreError>> {
        let Some(stored) = &mut self.stored else { return Ok(Err(store::StoreError::Unavailable)) };
        Ok(stored.set(key, value).map_err(|error| match error {
            StoreError::InvalidArgument => store::StoreError::InvalidArgument,
            StoreError::Full => store::StoreError::Full,
        }))
    }

    async fn remove(&mut self, key: String) -> Result<()> {
        if let Some(stored) = &mut self.stored {
            stored.remove(&key);
        }
        Ok(())
    }

    async fn keys(&mut self) -> Result<Vec<String>> {
        Ok(self.stored.as_ref().map(Stored::keys).unwrap_or_default())
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
            method: egress::method(&request.method).map_err(egress::Error::BadRequest)?,
            path: request.path,
            headers: request.headers.into_iter().map(|header| (header.name, header.value)).collect(),
            body: request.body,
            body_encoding: match request.body_encoding {
                http::BodyEncoding::Raw => egress::BodyEncoding::Raw,
                http::BodyEncoding::Form => egress::BodyEncoding::Form,
                http::BodyEncoding::Json => egress::BodyEncoding::Json,
            },
            reading: match request.response_body {
                http::BodyReading::Whole => egress::BodyReading::Whole,
                http::BodyReading::None => egress::BodyReading::None,
                http::BodyReading::First(count) => egress::BodyReading::First(count as usize),
                http::BodyReading::Until(texts) => egress::BodyReading::Until(texts),
            },
            captures: request.captures.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            signatures: request.signatures.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            authentication: request.authentication.map(Into::into),
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
            http::CaptureSource::Pattern(pattern) => egress::CaptureSource::Pattern(pattern),
        };
        Ok(Self {
            statuses: capture.statuses.iter().map(|range| range.lowest..=range.highest).collect(),
            optional: capture.optional,
            durable: capture.durable,
            ..Self::new(capture.name, source, Duration::from_millis(capture.ttl_ms.into()))
        })
    }
}

impl TryFrom<http::Signature> for egress::Signature {
    type Error = egress::Error;

    fn try_from(signature: http::Signature) -> Result<Self, egress::Error> {
        without_extra(&signature.extra)?;
        let parts = |parts: Vec<http::SignaturePart>| parts.into_iter().map(Into::into).collect();
        Ok(Self {
            name: signature.name,
            algorithm: signature.algorithm,
            key: parts(signature.key),
            input: parts(signature.input),
            encoding: match signature.encoding {
                http::SignatureEncoding::Raw => egress::SignatureEncoding::Raw,
                http::SignatureEncoding::Hex => egress::SignatureEncoding::Hex,
                http::SignatureEncoding::Base64 => egress::SignatureEncoding::Base64,
                http::SignatureEncoding::Base64url => egress::SignatureEncoding::Base64Url,
            },
            iterations: signature.iterations,
        })
    }
}

impl From<http::SignaturePart> for egress::SignaturePart {
    fn from(part: http::SignaturePart) -> Self {
        match part {
            http::SignaturePart::Bytes(bytes) => Self::Bytes(bytes),
            http::SignaturePart::Body => Self::Body,
            http::SignaturePart::Signature(name) => Self::Signature(name),
            http::SignaturePart::Secret(http::SecretPart { name, encoding }) => {
                let encoding = match encoding {
                    http::SecretEncoding::Utf8 => egress::SecretEncoding::Utf8,
                    http::SecretEncoding::Utf16le => egress::SecretEncoding::Utf16Le,
                    http::SecretEncoding::Base64 => egress::SecretEncoding::Base64,
                    http::SecretEncoding::Base32 => egress::SecretEncoding::Base32,
                    http::SecretEncoding::Hex => egress::SecretEncoding::Hex,
                };
                Self::Secret(name, encoding)
            }
        }
    }
}

impl From<http::Authentication> for egress::Authentication {
    fn from(authentication: http::Authentication) -> Self {
        let credentials =
            |http::Credentials { user, password }: http::Credentials| egress::Credentials { user, password };
        match authentication {
            http::Authentication::Basic(login) => Self::Basic(credentials(login)),
            http::Authentication::Digest(login) => Self::Digest(credentials(login)),
            http::Authentication::Bearer(name) => Self::Bearer(name),
        }
    }
}

fn answer(exchanged: Exchanged) -> Result<http::Response, http::HttpError> {
    let response = exchanged.result.map_err(|error| http::HttpError {
        exchange: exchanged.number,
        status: exchanged.status,
        class: match error.class() {
            ErrorClass::Denied => http::HttpErrorClass::Denied,
            ErrorClass::InvalidArgument => http::HttpErrorClass::InvalidArgument,
            ErrorClass::NameLookup => http::HttpErrorClass::NameLookup,
            ErrorClass::ConnectionRefused => http::HttpErrorClass::ConnectionRefused,
            ErrorClass::Unreachable => http::HttpErrorClass::Unreachable,
            ErrorClass::ConnectionFailed => http::HttpErrorClass::ConnectionFailed,
            ErrorClass::Certificate => http::HttpErrorClass::Certificate,
            ErrorClass::Protocol => http::HttpErrorClass::Protocol,
            ErrorClass::Closed => http::HttpErrorClass::Closed,
            ErrorClass::Timeout => http::HttpErrorClass::Timeout,
            ErrorClass::CallOver => http::HttpErrorClass::CallOver,
            ErrorClass::BodyTooLarge => http::HttpErrorClass::BodyTooLarge,
            ErrorClass::Capture => http::HttpErrorClass::Capture,
            ErrorClass::Limit => http::HttpErrorClass::Limit,
            ErrorClass::NotRecorded | ErrorClass::Other => http::HttpErrorClass::Other,
        },
        code: error.code().to_owned(),
        message: error.to_string(),
        retryable: error.retryable(),
    })?;
    let timing = response.timing;
    Ok(http::Response {
        exchange: response.exchange,
        status: response.status,
        reason: response.reason,
        headers: response.headers.into_iter().map(|(name, value)| http::Header { name, value }).collect(),
        body: response.body,
        body_complete: response.is_complete,
        timing: http::Timing {
            dns_ms: timing.dns_ms,
            connect_ms: timing.connect_ms,
            tls_ms: timing.tls_ms,
            first_byte_ms: timing.first_byte_ms,
            total_ms: timing.total_ms,
        },
    })
}

impl From<egress::TlsSession> for tls::TlsSession {
    fn from(session: egress::TlsSession) -> Self {
        let egress::TlsSession { protocol, cipher, alpn, server_name, chain, problem } = session;
        let chain = chain.into_iter().map(Into::into).collect();
        Self { protocol, cipher, alpn, server_name, chain, problem }
    }
}

impl From<egress::Certificate> for tls::Certificate {
    fn from(certificate: egress::Certificate) -> Self {
        Self {
            fingerprint: certificate.fingerprint,
            subject: certificate.subject,
            issuer: certificate.issuer,
            serial: certificate.serial,
            not_before: certificate.not_before,
            not_after: certificate.not_after,
            names: certificate.names,
            key: certificate.key,
            signature_algorithm: certificate.signature_algorithm,
            is_authority: certificate.is_authority,
        }
    }
}
