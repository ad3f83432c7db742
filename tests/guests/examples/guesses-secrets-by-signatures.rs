//! Lets the host sign and authenticate with a secret, has the result echoed, and looks for what depends on the secret.

use polliwog_sdk::http::{CaptureSource, Part, Request, SecretEncoding, Signature, secret, signature};
use polliwog_sdk::{CallError, Dependency, Endpoint, Report};
use std::time::Duration;

guests::guest!("guesses-secrets-by-signatures", poll);

const MINUTE: Duration = Duration::from_secs(60);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let mut report = Report::empty();
    let mut note = |name: String, seen: Result<String, String>| {
        report.dependencies.push(Dependency::ok(name).with_title(seen.unwrap_or_else(|code| code)));
    };
    // The results themselves.
    let key = || vec![Part::secret("token")];
    for (name, made) in [
        ("digest", Signature::sha256().input(Part::secret("token"))),
        ("keyed", Signature::hmac_sha256(key()).input("x")),
        ("base64", Signature::new("md5", Vec::new()).input(Part::secret("token")).base64()),
        ("derived", Signature::pbkdf2_hmac_sha256(key(), 10).input("salt").base64url()),
    ] {
        note(name.to_owned(), echoed(Request::get("/echo/plain").header("x-token", signature("s")).sign("s", made)));
    }
    // The first character of the password behind texts that make it the last one of a group of base64.
    for user in ["", "u", "uu", "uuu", "uuuu"] {
        let guesses: Vec<String> = (b' '..=b'~').map(|guess| base64(user, guess)).collect();
        let request = || Request::get("/echo/plain").header("x-token", guesses.join(" "));
        for (kind, request) in
            [("basic", request().basic_auth(user, "token")), ("digest", request().digest_auth(user, "token"))]
        {
            let seen = echoed(request).map(|seen| if seen.contains('*') { "starred" } else { "untouched" }.to_owned());
            note(format!("{kind}/{user}"), seen);
        }
    }
    // Whether a pattern finds a beginning of the secret, and whether the part is kept.
    for (number, pattern) in ["(h.*)", "(hunter.*)", "(......)", "JUNK(.*)"].into_iter().enumerate() {
        let source = CaptureSource::Pattern(pattern.to_owned());
        let request = Request::get("/echo/plain").header("x-token", format!("JUNK{}", secret("token")));
        note(format!("pattern/{number}"), echoed(request.capture("part", source, MINUTE)));
        note(format!("kept/{number}"), echoed(Request::get("/echo/plain").header("x-token", secret("part"))));
    }
    // Uses that must not be possible.
    for (name, made) in [
        ("itself", Signature::sha256().input(Part::signature("s"))),
        ("absent", Signature::sha256().input(Part::secret("absent"))),
        ("no key", Signature::rsa_sha256("token").input("x")),
        ("unknown", Signature::new("rot13", Vec::new()).input(Part::secret("token"))),
        ("raw", Signature::sha256().input(Part::secret("token")).raw()),
        ("no hex", Signature::sha256().input(Part::secret_in("token", SecretEncoding::Hex))),
        ("forever", Signature::pbkdf2_hmac_sha256(key(), u32::MAX).input("salt")),
    ] {
        let request = Request::get("/echo/plain").header("x-token", signature("s")).sign("s", made);
        note(format!("refused/{name}"), echoed(request));
    }
    let many = (0..17).fold(Request::get("/"), |request, number| request.sign(number.to_string(), Signature::sha256()));
    note("refused/many".to_owned(), echoed(many));
    for method in ["TRACE", "CONNECT"] {
        note(format!("refused/{method}"), echoed(Request::new(method, "/echo/plain").bearer_auth("token")));
    }
    // More work than a call has.
    let long = || Signature::pbkdf2_hmac_sha256(key(), 1_000_000).input("salt");
    let codes = (0..3).map(|_| echoed(Request::get("/").sign("s", long())).err());
    note("work".to_owned(), Err(format!("{:?}", codes.collect::<Vec<_>>())));
    Ok(report)
}

/// Returns the answer, or the code of the error.
fn echoed(request: Request) -> Result<String, String> {
    request.send().map(|answer| answer.text()).map_err(|error| error.code)
}

/// Returns the base64 of the beginning of a log-in whose password begins with the guess.
fn base64(user: &str, guess: u8) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("{user}:{}", char::from(guess)).into_bytes();
    text.resize(6, b'A');
    let group = |group: &[u8]| {
        let bits = u32::from(group[0]) << 16 | u32::from(group[1]) << 8 | u32::from(group[2]);
        [18, 12, 6, 0].map(|shift| char::from(DIGITS[(bits >> shift & 63) as usize]))
    };
    text.chunks(3).flat_map(group).collect()
}
