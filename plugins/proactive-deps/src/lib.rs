//! Kind `proactive-deps`: parses the JSON array of the proactive-deps libraries, and of services with the same format.
//!
//! Both forms are supported for each item: nested (`health.state`, `health.code`, `health.latency`, `health.skipped`)
//! and flat (`healthCode`, `latencyMs`). `health.state` is a number (0 ok, 1 warning, 2 critical) or one of the
//! library's words; it may also stand for the whole of `health`. `code` is a code of the source and never a state.
//! The worse of `healthy` and the state counts, and of a field that is repeated the worst value. An item without a
//! name gets one from its place ("item 3"). An item whose state cannot be read is unknown. The body is parsed for any
//! status of the response. A body that is not an array fails the poll.

#![deny(unsafe_code)]

mod health;

use health::{Health, health, repeated};
use jiff::Timestamp;
use polliwog_sdk::http::ExpectedStatus;
use polliwog_sdk::prelude::*;
use polliwog_sdk::serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use polliwog_sdk::serde_json::{self, value::RawValue};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The plugin for kind `proactive-deps`.
pub struct ProactiveDeps;

impl Poller for ProactiveDeps {
    type Settings = Settings;
    const INFO: Info = Info {
        kind: "proactive-deps",
        title: "proactive-deps",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Dependencies of a service, as the proactive-deps libraries report them",
        ..Info::SERVICE
    };

    fn check(settings: &Settings) -> Vec<SettingsProblem> {
        [ExpectedStatus::problems(&settings.expected_status), http::header_problems(&settings.headers)].concat()
    }

    fn poll(_: &Endpoint, settings: Settings) -> Result<Report, CallError> {
        let response = http::Request::get_json("", &settings.headers).send()?;
        response.report_expecting(&settings.expected_status, |response| Ok(read(response.json()?)))
    }
}

polliwog_sdk::register!(ProactiveDeps);

/// The settings of a target of kind `proactive-deps`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Headers of the request. `${secret.NAME}` is replaced by a secret of the target.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The expected statuses of the answer: numbers or classes such as "2xx". With another one, the target is critical
    /// even if every part is ok.
    #[serde(default = "ExpectedStatus::success")]
    pub expected_status: Vec<ExpectedStatus>,
}

/// The fields of an item that are read.
#[derive(Clone, Copy, Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
    Name,
    Description,
    Impact,
    Type,
    Healthy,
    Health,
    HealthCode,
    LatencyMs,
    LastChecked,
    Contact,
    CheckDetails,
    Error,
    ErrorMessage,
    #[serde(other)]
    Other,
}

/// One item with unparsed fields. Each field is parsed separately, so that one invalid field does not affect the
/// others. `null` is no value. If a field is repeated, its last value counts, but for those of the status.
#[derive(Default)]
struct Item<'a> {
    last: [Option<&'a RawValue>; Field::Other as usize + 1],
    /// Values of `healthy` and `health` before the last ones.
    earlier: Vec<(Field, &'a RawValue)>,
}

impl<'a> Item<'a> {
    fn add(&mut self, field: Field, raw: &'a RawValue) {
        let earlier = self.last[field as usize].replace(raw);
        if matches!(field, Field::Healthy | Field::Health) {
            self.earlier.extend(earlier.map(|earlier| (field, earlier)));
        }
    }

    fn get(&self, field: Field) -> Option<&'a RawValue> {
        self.last[field as usize].filter(|raw| raw.get() != "null")
    }

    /// Returns the values of a field of the status that a later one replaced.
    fn earlier(&self, field: Field) -> impl Iterator<Item = &'a RawValue> {
        let is_field = move |(of, _): &&(Field, &'a RawValue)| *of as usize == field as usize;
        self.earlier.iter().filter(is_field).map(|(_, raw)| *raw).filter(|raw| raw.get() != "null")
    }
}

/// An element of the array. The body is scanned once: unparsed elements would be scanned again.
#[cfg_attr(not(target_family = "wasm"), expect(clippy::large_enum_variant, reason = "nearly all elements are items"))]
enum Element<'a> {
    Item(Item<'a>),
    /// Another value than an object.
    Odd,
}

impl<'de> Deserialize<'de> for Element<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyElement)
    }
}

struct AnyElement;

impl<'de> Visitor<'de> for AnyElement {
    type Value = Element<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut item = Item::default();
        while let Some((field, raw)) = map.next_entry::<Field, &RawValue>()? {
            item.add(field, raw);
        }
        Ok(Element::Item(item))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Element::Odd)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Element::Odd)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Element::Odd)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Element::Odd)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Element::Odd)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Element::Odd)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Element::Odd)
    }
}

fn read(elements: Vec<Element<'_>>) -> Report {
    let mut report = Report::empty();
    report.dependencies.reserve_exact(elements.len());
    for (index, element) in elements.into_iter().enumerate() {
        let dependency = match element {
            Element::Item(item) => dependency(index, &item, &mut report.warnings),
            Element::Odd => Dependency::unknown(place(index), "it is not a JSON object"),
        };
        report.dependencies.push(dependency);
    }
    report
}

/// Returns the name of an item that has none.
fn place(index: usize) -> String {
    format!("item {}", index + 1)
}

fn dependency(index: usize, item: &Item<'_>, warnings: &mut Vec<String>) -> Dependency {
    let text = |field| item.get(field).and_then(text);
    let name = item.get(Field::Name).and_then(name).unwrap_or_else(|| {
        let place = place(index);
        warnings.push(format!("{place} has no name: its \"name\" is missing, empty, a list or an object"));
        place
    });
    let mut last = item.get(Field::Health).map(health);
    let is_nested = last.is_some();
    let mut earlier = Vec::new();
    if let (Some(None), Some(raw)) = (last, item.get(Field::Health)) {
        earlier = repeated(raw);
        last = Some(earlier.pop().flatten());
    }
    earlier.extend(
        item.earlier(Field::Health).flat_map(|raw| health(raw).map_or_else(|| repeated(raw), |it| vec![Some(it)])),
    );
    let all = || last.iter().chain(&earlier).copied();
    let is_skipped =
        |health: Option<Health<'_>>| health.and_then(|health| health.skipped).and_then(parse) == Some(true);
    // Of several, each one has to say so.
    let skipped = is_nested && all().all(is_skipped);
    let mut stated = Status::Ok;
    for health in all() {
        let Some(Health { state, .. }) = health else {
            warnings.push(format!("\"health\" of {name:?} cannot be read"));
            stated = stated.worse(Status::Unknown);
            continue;
        };
        let state = state.filter(|_| !skipped).map(|state| status(&name, state, warnings));
        stated = stated.worse(state.unwrap_or(Status::Ok));
    }
    let status = if skipped { Status::Ok } else { stated.worse(healthy(&name, item, warnings)) };
    let flat = || (item.get(Field::HealthCode), item.get(Field::LatencyMs));
    let nested = || {
        let found = || all().flatten();
        (found().find_map(|health| health.code), found().find_map(|health| health.latency))
    };
    let (code, latency) = if is_nested { nested() } else { flat() };
    let checked_at = item.get(Field::LastChecked).and_then(|raw| checked_at(&name, raw, warnings));
    Dependency {
        kind: text(Field::Type).filter(|kind| !kind.trim().is_empty()),
        code: code.and_then(parse::<f64>).map(|code| code as i32),
        latency_ms: latency.and_then(parse),
        description: text(Field::Description),
        impact: text(Field::Impact),
        checked_at,
        error: item.get(Field::Error).map(json_text),
        error_message: text(Field::ErrorMessage),
        contact: object(item.get(Field::Contact)).map(json_text),
        check_details: object(item.get(Field::CheckDetails)).map(json_text),
        ..Dependency::new(name, status).with_skipped(skipped)
    }
}

/// Returns the worst status of the values of `healthy`. Unknown without any, or if one is neither true nor false.
fn healthy(name: &str, item: &Item<'_>, warnings: &mut Vec<String>) -> Status {
    let read = |raw: &RawValue| match parse::<bool>(raw) {
        Some(true) => Status::Ok,
        Some(false) => Status::Critical,
        None => Status::Unknown,
    };
    let status = item
        .get(Field::Healthy)
        .into_iter()
        .chain(item.earlier(Field::Healthy))
        .map(read)
        .reduce(Status::worse)
        .unwrap_or(Status::Unknown);
    if status == Status::Unknown {
        warnings.push(format!("\"healthy\" of {name:?} is missing or neither true nor false"));
    }
    status
}

/// Returns the status of a state. One that is not known is unknown.
fn status(name: &str, state: &RawValue, warnings: &mut Vec<String>) -> Status {
    let stated = match text(state) {
        Some(word) => match word.trim().to_ascii_lowercase().as_str() {
            "ok" | "0" => Some(Status::Ok),
            "warning" | "1" => Some(Status::Warning),
            "critical" | "2" => Some(Status::Critical),
            _ => None,
        },
        None => match (state.get(), parse::<f64>(state)) {
            ("true", _) | (_, Some(0.0)) => Some(Status::Ok),
            (_, Some(1.0)) => Some(Status::Warning),
            ("false", _) | (_, Some(2.0)) => Some(Status::Critical),
            _ => None,
        },
    };
    stated.unwrap_or_else(|| {
        warnings.push(format!("the state of {name:?} is {}, expected 0, 1, 2, OK, WARNING or CRITICAL", state.get()));
        Status::Unknown
    })
}

fn checked_at(name: &str, raw: &RawValue, warnings: &mut Vec<String>) -> Option<i64> {
    let time = text(raw).and_then(|text| Timestamp::from_str(&text).ok());
    if time.is_none() {
        warnings
            .push(format!("\"lastChecked\" of {name:?} is {}, which is not an ISO 8601 time with a zone", raw.get()));
    }
    time.map(Timestamp::as_millisecond)
}

fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// Returns a text. One without escapes is not scanned again.
fn text(raw: &RawValue) -> Option<String> {
    let quoted = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if quoted.contains('\\') { parse(raw) } else { Some(quoted.to_owned()) }
}

/// Returns the name that a value is: a text, a number or a boolean. `None` if it is another value, or blank.
fn name(raw: &RawValue) -> Option<String> {
    let is_scalar = !raw.get().starts_with(['[', '{', '"']);
    let name = if is_scalar { Some(raw.get().to_owned()) } else { text(raw) };
    name.filter(|name| !name.trim().is_empty())
}

fn object(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|raw| raw.get().starts_with('{'))
}

fn json_text(raw: &RawValue) -> String {
    raw.get().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::testing::{Recording, poll, target};

    fn report(body: &str) -> Report {
        poll::<ProactiveDeps>(Recording::of_body(body), target("{}")).expect("the body is an array")
    }

    fn status_of(item: &str) -> Status {
        let report = report(&format!("[{item}]"));
        report.dependencies.first().unwrap_or_else(|| panic!("skipped: {:?}", report.warnings)).status
    }

    #[test]
    fn the_worse_of_healthy_and_state_counts() {
        let cases = [
            (r#"{"name":"a","healthy":true}"#, Status::Ok),
            (r#"{"name":"a","healthy":false}"#, Status::Critical),
            (r#"{"name":"a","healthy":true,"health":{}}"#, Status::Ok),
            (r#"{"name":"a","healthy":true,"health":{"status":"DOWN"}}"#, Status::Unknown),
            (r#"{"name":"a","healthy":true,"health":{"State":2}}"#, Status::Unknown),
            (r#"{"name":"a","healthy":true,"health":{"code":200,"note":"x"}}"#, Status::Ok),
            (r#"{"name":"a","healthy":false,"health":{}}"#, Status::Critical),
            (r#"{"name":"a","healthy":true,"health":{"state":1,"code":2}}"#, Status::Warning),
            (r#"{"name":"a","healthy":true,"health":{"state":"WARNING","code":2}}"#, Status::Warning),
            (r#"{"name":"a","healthy":true,"health":{"state":"critical"}}"#, Status::Critical),
            (r#"{"name":"a","healthy":false,"health":{"state":"OK"}}"#, Status::Critical),
            (r#"{"name":"a","healthy":true,"health":{"state":0,"code":1}}"#, Status::Ok),
            (r#"{"name":"a","healthy":true,"health":{"state":"MELTING"}}"#, Status::Unknown),
            (r#"{"name":"a","healthy":false,"health":{"state":7}}"#, Status::Critical),
            (r#"{"name":"a","healthy":false,"health":{"state":2,"skipped":true}}"#, Status::Ok),
            (r#"{"name":"a","health":{"skipped":true}}"#, Status::Ok),
            (r#"{"name":"a","healthy":true,"health":"CRITICAL"}"#, Status::Critical),
            (r#"{"name":"a","healthy":true,"health":"ok"}"#, Status::Ok),
            (r#"{"name":"a","healthy":true,"health":true}"#, Status::Ok),
            (r#"{"name":"a","healthy":true,"health":false}"#, Status::Critical),
            (r#"{"name":"a","healthy":true,"health":2}"#, Status::Critical),
            (r#"{"name":"a","healthy":true,"health":"DOWN"}"#, Status::Unknown),
            (r#"{"name":"a","healthy":true,"health":[{"state":2}]}"#, Status::Unknown),
            (r#"{"name":"a","healthy":true,"health":null}"#, Status::Ok),
        ];
        for (item, expected) in cases {
            assert_eq!(status_of(item), expected, "{item}");
        }
    }

    #[test]
    fn every_field_of_both_forms_is_read() {
        let found = report(
            r##"[{"name":"db","type":"database","description":"main","impact":"all","healthy":false,
                 "health":{"state":"CRITICAL","code":1,"latency":31.5,"skipped":false},
                 "lastChecked":"2025-04-13T14:00:00.1230000+02:00","contact":{"slack":"#db"},
                 "checkDetails":{"type":"rest"},"error":{"name":"Error"},"errorMessage":"refused"},
                {"name":"flat","healthy":true,"healthCode":200,"latencyMs":12,"contact":["no object"],"error":"text"}]"##,
        );
        assert_eq!(found.warnings, Vec::<String>::new());
        let [db, flat] = &found.dependencies[..] else { panic!("{found:?}") };
        assert_eq!(db.kind.as_deref(), Some("database"));
        assert_eq!((db.code, db.latency_ms), (Some(1), Some(31.5)));
        assert_eq!(db.checked_at, Some(1_744_545_600_123));
        assert_eq!(db.contact.as_deref(), Some(r##"{"slack":"#db"}"##));
        assert_eq!(db.error.as_deref(), Some(r#"{"name":"Error"}"#));
        assert_eq!(db.error_message.as_deref(), Some("refused"));
        assert_eq!((flat.code, flat.latency_ms, flat.contact.as_deref()), (Some(200), Some(12.0), None));
        assert_eq!(flat.error.as_deref(), Some("\"text\""));
    }

    #[test]
    fn every_item_keeps_its_status() {
        let found = report(
            r#"[1, null, {"healthy":false}, {"name":" ","healthy":true}, {"name":7,"healthy":false}, {"name":"b"},
                {"name":"c","healthy":"yes"}, {"name":["d"],"healthy":true}, "DOWN",
                {"name":"e","healthy":true,"health":{"state":0,"state":2}}, {"name":"f","healthy":false,"health":{"skipped":true,"skipped":true}},
                {"name":"good","healthy":true,"lastChecked":"yesterday"}]"#,
        );
        let outline: Vec<_> =
            (found.dependencies.iter()).map(|found| format!("{}={}", found.name, found.status.as_str())).collect();
        assert_eq!(
            outline.join(" "),
            "item 1=unknown item 2=unknown item 3=critical item 4=ok 7=critical b=unknown c=unknown item 8=ok item 9=unknown e=critical \
             f=ok good=ok"
        );
        assert_eq!(found.warnings.len(), 6, "{:?}", found.warnings);
    }

    #[test]
    fn of_a_field_that_is_repeated_the_worst_value_counts() {
        for (item, expected) in [
            (r#"{"name":"a","healthy":false,"healthy":true}"#, Status::Critical),
            (r#"{"name":"a","healthy":true,"healthy":false}"#, Status::Critical),
            (r#"{"name":"a","healthy":true,"healthy":null}"#, Status::Ok),
            (r#"{"name":"a","healthy":true,"health":{"state":2},"health":{"state":0}}"#, Status::Critical),
            (r#"{"name":"a","healthy":true,"health":{"state":0},"health":{"state":1}}"#, Status::Warning),
            (r#"{"name":"a","healthy":true,"health":{"state":[]},"health":{"state":0}}"#, Status::Unknown),
            (r#"{"name":"a","healthy":true,"health":{"state":2,"state":0}}"#, Status::Critical),
            (r#"{"name":"a","healthy":true,"health":{"state":0,"state":null,"state":1}}"#, Status::Warning),
            (r#"{"name":"a","healthy":true,"health":{"state":0,"state":2},"health":{"state":0}}"#, Status::Critical),
            (r#"{"name":"a","healthy":true,"health":{"state":2,"skipped":true,"skipped":true}}"#, Status::Ok),
            (
                r#"{"name":"a","healthy":true,"health":{"state":2,"skipped":true,"state":0,"skipped":false}}"#,
                Status::Critical,
            ),
            (r#"{"name":"a","healthy":true,"health":{"code":1,"code":2,"x":1,"x":2}}"#, Status::Ok),
            (
                r#"{"name":"a","healthy":true,"health":{"state":2},"health":{"state":0,"skipped":true}}"#,
                Status::Critical,
            ),
            (
                r#"{"name":"a","healthy":true,"health":{"state":2,"skipped":false},"health":{"skipped":true}}"#,
                Status::Critical,
            ),
            (
                r#"{"name":"a","healthy":false,"health":{"state":2,"skipped":true},"health":{"skipped":true}}"#,
                Status::Ok,
            ),
        ] {
            assert_eq!(status_of(item), expected, "{item}");
        }
    }

    #[test]
    fn values_of_a_health_with_a_repeated_field_are_read() {
        let item = r#"[{"name":"a","healthy":true,"health":{"state":0,"state":1,"latency":5,"code":7}}]"#;
        let found = &report(item).dependencies[0];
        assert_eq!((found.status, found.code, found.latency_ms), (Status::Warning, Some(7), Some(5.0)));
    }

    #[test]
    fn a_field_that_is_repeated_very_often_is_unknown() {
        let many = vec![r#""state":0"#; 100_000].join(",");
        assert_eq!(status_of(&format!(r#"{{"name":"a","healthy":true,"health":{{{many}}}}}"#)), Status::Unknown);
    }

    #[test]
    fn a_body_that_is_not_an_array_fails_the_poll() {
        for (body, code) in [("{}", "unexpected_shape"), ("<html>", "not_json"), ("", "not_json"), ("[1,", "not_json")]
        {
            let error = poll::<ProactiveDeps>(Recording::of_body(body), target("{}")).expect_err(body);
            assert!(matches!(error, CallError::Transient(_)), "{body}");
            assert_eq!(error.failure().code, code, "{body}");
        }
    }

    #[test]
    fn a_report_is_used_for_any_http_status() {
        let answer = |body: &str| {
            let recording = serde_json::json!([{
                "request": { "method": "GET", "url": "/" },
                "response": { "status": 503, "headers": [], "body": body },
            }]);
            poll::<ProactiveDeps>(Recording::parse(&recording.to_string()), target("{}"))
        };
        let report = answer(r#"[{"name":"db","healthy":false}]"#).expect("a report");
        assert_eq!(report.dependencies[0].status, Status::Critical);
        let odd = answer("[1]").expect("a report").error_unless_known.expect("an error");
        assert_eq!(odd.failure().code, "server_error");
        for body in ["[]", "<html>", "{}"] {
            assert_eq!(answer(body).expect_err(body).failure().code, "server_error", "{body}");
        }
    }

    #[test]
    fn http_errors_without_a_report_become_failures() {
        for (status, code, transient) in [
            (401, "unauthorized", false),
            (404, "not_found", false),
            (503, "server_error", true),
            (429, "too_many_requests", true),
        ] {
            let recording = Recording::parse(&format!(
                r#"[{{"request":{{"method":"GET","url":"/"}},
                     "response":{{"status":{status},"headers":[["Retry-After","7"]]}}}}]"#
            ));
            let error = poll::<ProactiveDeps>(recording, target("{}")).expect_err("the status is not 2xx");
            assert_eq!((error.failure().code.as_str(), error.failure().retry_after_ms), (code, Some(7000)));
            assert_eq!(matches!(error, CallError::Transient(_)), transient, "{status}");
        }
    }
}
