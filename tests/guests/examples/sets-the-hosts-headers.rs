//! Sets headers that only the host may set.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, http};

guests::guest!("sets-the-hosts-headers", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let names = [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "connection",
        "Proxy-Authorization",
        "proxy-connection",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "keep-alive",
        "accept-encoding",
        "http2-settings",
        ":authority",
    ];
    let requests = names.map(|name| (name.to_owned(), http::Request::get("/").header(name, "evil.example")));
    let code = |(name, request): (String, http::Request)| {
        let code = request.send().map_or_else(|error| error.code, |response| response.status().to_string());
        Dependency::ok(name).with_title(code)
    };
    Ok(requests.map(code).into_iter().collect())
}
