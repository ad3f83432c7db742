//! Has its secret sent back, and ends the reading at characters that only the secret has.

use polliwog_sdk::http::{HttpError, Request, Response, secret};
use polliwog_sdk::{CallError, Dependency, Endpoint, Report};

guests::guest!("ends-answers-inside-secrets", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let mut report = Report::empty();
    let mut note = |name: String, answer: Result<Response, HttpError>| {
        let seen =
            answer.map_or_else(|error| error.code, |answer| format!("{}{}", answer.text(), answer.is_complete()));
        report.dependencies.push(Dependency::ok(name).with_title(seen));
    };
    for form in ["plain", "percent", "base64"] {
        let request = || Request::get(format!("/echo/{form}")).header("x-token", secret("token"));
        for guess in b'!'..=b'~' {
            note(format!("until/{form}/{guess}"), request().read_until([[guess]]).send());
        }
        for bytes in 1..8 {
            note(format!("first/{form}/{bytes}"), request().read_first(bytes).send());
        }
        note(format!("none/{form}"), request().read_nothing().send());
    }
    let texts = |count: usize, length: usize| vec![vec![b'x'; length]; count];
    let plain = || Request::get("/echo/plain");
    for (name, request) in [
        ("no text", plain().read_until(texts(0, 0))),
        ("an empty text", plain().read_until(texts(1, 0))),
        ("a long text", plain().read_until(texts(1, 257))),
        ("many texts", plain().read_until(texts(17, 1))),
        ("no byte", plain().read_first(0)),
        ("billions of bytes", plain().read_first(u32::MAX)),
    ] {
        note(format!("refused/{name}"), request.send());
    }
    Ok(report)
}
