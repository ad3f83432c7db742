//! A form log-in that answers with a cookie, as of many web applications: the plugin keeps the session over polls, and
//! logs in again when it has expired, and logs out when the target ends. It never sees the password or the cookie.
//!
//! `cargo build --example log_in --target wasm32-wasip2`

use polliwog_sdk::http::{BodyEncoding, CaptureSource, Request, Response};
use polliwog_sdk::prelude::*;
use polliwog_sdk::{SecretSpec, Session, http};
use std::time::Duration;

/// The session's name among the secrets.
const SESSION: &str = "session";
/// How long a session is used.
const VALID: Duration = Duration::from_secs(3600);

/// The plugin.
pub struct LogIn;

/// The settings of a target.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The name of the account.
    user: String,
}

impl Poller for LogIn {
    type Settings = Settings;
    const INFO: Info = Info {
        kind: "log-in",
        title: "An application with a log-in",
        version: env!("CARGO_PKG_VERSION"),
        summary: "The state of an application that wants a log-in",
        ..Info::SERVICE
    };

    fn secrets() -> Vec<SecretSpec> {
        vec![SecretSpec::required("password", "the password of a read-only account")]
    }

    fn poll(_: &Endpoint, settings: Settings) -> Result<Report, CallError> {
        if http::has_secret(SESSION) {
            let answer = state()?;
            if answer.status() != 401 {
                return report(&answer.success()?);
            }
            http::forget_secret(SESSION);
        }
        log_in(&settings.user)?;
        report(&state()?.success()?)
    }
}

impl Session for LogIn {
    type Settings = Settings;

    fn close(_: &Endpoint, _: Settings) {
        if http::has_secret(SESSION) {
            // If this fails, the session ends when it has expired.
            let _ = Request::new("POST", "logout").header("cookie", cookie()).read_nothing().send();
        }
    }
}

polliwog_sdk::register!(LogIn with session);

/// Logs in. Applications redirect afterwards, so the cookie is in an answer with status 302 or 303.
fn log_in(user: &str) -> Result<(), CallError> {
    // The host escapes the password for a form.
    let form = format!("user={user}&password={}", http::secret("password"));
    Request::new("POST", "login")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form, BodyEncoding::Form)
        .capture_from(200..=399, SESSION, CaptureSource::Cookie("session".to_owned()), VALID)
        .send()?;
    Ok(())
}

fn state() -> Result<Response, CallError> {
    Ok(Request::get("api/state").header("cookie", cookie()).send()?)
}

fn cookie() -> String {
    format!("session={}", http::secret(SESSION))
}

/// The answer of the application: its parts, and whether each works.
fn report(answer: &Response) -> Result<Report, CallError> {
    let parts: std::collections::BTreeMap<String, bool> = answer.json()?;
    let dependency = |(name, works): (String, bool)| match works {
        true => Dependency::ok(name),
        false => Dependency::critical(name, "the application says that it does not work"),
    };
    Ok(parts.into_iter().map(dependency).collect())
}
