//! Requests URLs of other origins than the target's.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, http};

guests::guest!("requests-other-origins", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let urls = [
        "http://evil.example/",
        "https://127.0.0.1/",
        "http://127.0.0.1:1/",
        "//evil.example/",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "unix:/run/docker.sock",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]:80/",
        "http://user@127.0.0.1/",
        "http:\\\\evil.example",
        "http://127.0.0.1:65536/",
        "javascript:1",
        "/ok\r\nHost: evil",
    ];
    let requests = urls.map(|url| (format!("{url:?}"), http::Request::get(url)));
    let code = |(name, request): (String, http::Request)| {
        let code = request.send().map_or_else(|error| error.code, |response| response.status().to_string());
        Dependency::ok(name).with_title(code)
    };
    Ok(requests.map(code).into_iter().collect())
}
