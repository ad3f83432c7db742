//! Sends requests to a collector.

use egress::{BodyEncoding, Grant, Lane, Limits, Method, Request, Session};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest answer in bytes.
const ANSWER: usize = 64 << 10;
/// The shown part of an answer in bytes.
const SHOWN: usize = 300;
/// The statuses after which another attempt may succeed: those of the specification, and those that an operator can
/// correct.
const RETRYABLE: [u16; 8] = [401, 403, 404, 408, 429, 502, 503, 504];

/// The kind of data of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Log records.
    Logs,
    /// Data points.
    Metrics,
}

impl Signal {
    /// Returns the word for it in messages.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Logs => "logs",
            Self::Metrics => "metrics",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Logs => "v1/logs",
            Self::Metrics => "v1/metrics",
        }
    }
}

/// Why the collector did not take a request, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another attempt may succeed, after this time if the collector says so.
    ForNow(String, Option<Duration>),
    /// No attempt succeeds, or a part was refused.
    ForGood(String),
}

/// The address of a collector, with the headers of its requests.
#[derive(Clone)]
pub struct Collector {
    /// The network access.
    pub grant: Arc<Grant>,
    /// The headers. Values may contain `${secret.NAME}`.
    pub headers: Vec<(String, String)>,
    /// The time limit of a request.
    pub timeout: Duration,
}

impl Collector {
    /// Sends one request.
    ///
    /// # Errors
    /// If the collector did not take all of it.
    pub async fn send(&self, lane: &Lane, signal: Signal, body: Vec<u8>) -> Result<(), Refusal> {
        let limits = Limits { requests: 1, body: ANSWER, bodies: ANSWER };
        let session = Session::new(lane.clone(), self.grant.clone(), limits, Instant::now() + self.timeout);
        let url = format!("{}/{}", self.grant.base.as_str().trim_end_matches('/'), signal.path());
        let mut request = Request { method: Method::POST, body: Some(body), ..Request::get(url) };
        request.body_encoding = BodyEncoding::Raw;
        let written = |(name, value): &(String, String)| (name.clone(), session.written(value));
        request.headers = self.headers.iter().map(written).collect();
        request.headers.push(("content-type".to_owned(), "application/x-protobuf".to_owned()));
        let response = session.fetch(request).await.map_err(|error| match error.retryable() {
            true => Refusal::ForNow(error.to_string(), None),
            false => Refusal::ForGood(error.to_string()),
        })?;
        let status = response.status;
        let text = String::from_utf8_lossy(&response.body[..response.body.len().min(SHOWN)]).trim().to_owned();
        if !(200..=299).contains(&status) {
            let remedy = match status {
                401 | 403 => ": check the secret and the headers",
                404 => ": check the path of the url, and whether it takes this kind of data",
                300..=399 => ": use the address that it redirects to",
                _ => "",
            };
            let why = format!("{} {} answered {status} {text:?}{remedy}", self.grant.base, signal.path());
            let header = response.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("retry-after"));
            let seconds = header.and_then(|(_, value)| value.trim().parse().ok()).map(Duration::from_secs);
            return Err(match RETRYABLE.contains(&status) || (300..=399).contains(&status) {
                true => Refusal::ForNow(why, seconds),
                false => Refusal::ForGood(why),
            });
        }
        match rejected(signal, &response.body) {
            Some(why) => Err(Refusal::ForGood(why)),
            None => Ok(()),
        }
    }
}

/// The part that the collector rejected although its status is 200 ("partial success").
fn rejected(signal: Signal, body: &[u8]) -> Option<String> {
    let (count, message) = match signal {
        Signal::Logs => {
            let partial = ExportLogsServiceResponse::decode(body).ok()?.partial_success?;
            (partial.rejected_log_records, partial.error_message)
        }
        Signal::Metrics => {
            let partial = ExportMetricsServiceResponse::decode(body).ok()?.partial_success?;
            (partial.rejected_data_points, partial.error_message)
        }
    };
    (count > 0).then(|| format!("the collector rejected {count} of the sent records: {message:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsPartialSuccess;

    #[test]
    fn a_partial_success_names_what_was_rejected() {
        let answer = |count, message: &str| {
            let partial = ExportLogsPartialSuccess { rejected_log_records: count, error_message: message.to_owned() };
            ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec()
        };
        let why = rejected(Signal::Logs, &answer(3, "too old")).unwrap();
        assert_eq!(why, "the collector rejected 3 of the sent records: \"too old\"");
        assert_eq!(rejected(Signal::Logs, &answer(0, "a warning")), None);
        assert_eq!(rejected(Signal::Logs, b""), None);
        assert_eq!(rejected(Signal::Metrics, b"no protobuf"), None);
    }
}
