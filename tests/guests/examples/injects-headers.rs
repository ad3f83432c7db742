//! Puts line breaks and other invalid characters into names and values of headers.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, http};

guests::guest!("injects-headers", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let headers = [
        ("x-a", "b\r\nx-evil: 1"),
        ("x-a\r\nx-evil", "1"),
        ("x-a: x-evil", "1"),
        ("x a", "1"),
        ("", "1"),
        ("x-a", "b\0c"),
        ("x-a", "b\nc"),
    ];
    let requests =
        headers.map(|(name, value)| (format!("{name:?}: {value:?}"), http::Request::get("/").header(name, value)));
    let code = |(name, request): (String, http::Request)| {
        let code = request.send().map_or_else(|error| error.code, |response| response.status().to_string());
        Dependency::ok(name).with_title(code)
    };
    Ok(requests.map(code).into_iter().collect())
}
