//! What one target may reach.

use crate::{Error, Method, Reach, Secrets, Tls};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use url::{Host, Url};

/// Scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Whether the connection is encrypted.
    pub https: bool,
    /// The lower-case host name, or an address without brackets.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
}

/// A URL that no request can be sent to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is no usable URL: {why}")]
pub struct InvalidUrl {
    url: String,
    why: String,
}

impl Origin {
    /// The origin of a URL with scheme http or https and without user information.
    pub fn of(url: &Url) -> Result<Self, InvalidUrl> {
        let invalid = |why: &str| InvalidUrl { url: without_password(url), why: why.to_owned() };
        let https = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(invalid("only http and https are spoken")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("it holds a user name or password: write it as a secret"));
        }
        let host = match url.host() {
            Some(Host::Domain(name)) => name.trim_end_matches('.').to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => return Err(invalid("it has no host")),
        };
        match url.port_or_known_default() {
            Some(port @ 1..) if !host.is_empty() => Ok(Self { https, host: host.into(), port }),
            _ => Err(invalid("it has no host or port")),
        }
    }

    /// Reads a URL and its origin.
    pub fn parse(text: &str) -> Result<(Url, Self), InvalidUrl> {
        let url = Url::parse(text).map_err(|error| InvalidUrl {
            // What stands before an @ may be a password.
            url: text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, rest)| format!("…@{rest}")),
            why: match text.contains("://") {
                true => format!("{error}; write it as https://host:port/path"),
                false => "its scheme is missing; write it as http://host:port/path, or https://".to_owned(),
            },
        })?;
        if !text.contains("://") && !matches!(url.scheme(), "http" | "https") {
            // `nas.lan:8080` has the form of a URL with the scheme `nas.lan`; what is behind an @ may follow a password.
            let shown = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
            let why = format!("its scheme is missing; write http://{shown} or https://{shown}");
            return Err(InvalidUrl { url: shown.to_owned(), why });
        }
        let origin = Self::of(&url)?;
        Ok((url, origin))
    }

    /// The address, where the host is one.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Host and port as they stand in a `Host` header; the port is left out where the scheme implies it.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_string() };
        let implied = if self.https { 443 } else { 80 };
        if self.port == implied { host } else { format!("{host}:{}", self.port) }
    }
}

/// Where a URL leads, and the path and query that are sent there.
pub fn requested(url: &Url) -> Result<(Origin, String), InvalidUrl> {
    let path_and_query = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    Ok((Origin::of(url)?, path_and_query))
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.https { "https" } else { "http" }, self.authority())
    }
}

fn without_password(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_password(None);
    let _ = url.set_username("");
    url.to_string()
}

/// One origin that a target may reach, and how.
#[derive(Clone, Debug)]
pub struct OriginGrant {
    /// Which.
    pub origin: Origin,
    /// How its certificate is judged.
    pub tls: Tls,
}

/// What one target may reach.
#[derive(Debug)]
pub struct Grant {
    /// The target's URL: paths are resolved against it.
    pub base: Url,
    /// Its own origin and those of `also`.
    pub origins: Vec<OriginGrant>,
    /// Which addresses those names may stand for.
    pub reach: Reach,
    /// What may be filled in.
    pub secrets: Secrets,
    /// What an operator allows of that, where it is less.
    pub narrowing: Narrowing,
    /// What is sent as `Host` to its own origin, where that is not the origin's name; see [`host_header`].
    pub host: Option<String>,
}

/// Whether a text can be sent as `Host`: a name or an address, and a port where there is one. In one sentence, why not.
pub fn host_header(text: &str) -> Result<(), String> {
    let parsed = Url::parse(&format!("http://{text}/")).ok();
    let same = parsed.is_some_and(|url| {
        let written = url.port().map_or_else(String::new, |port| format!(":{port}"));
        url.host_str().is_some_and(|host| text.eq_ignore_ascii_case(&format!("{host}{written}")))
    });
    if same {
        Ok(())
    } else {
        Err(format!("{text:?} is no host: write a name, and where needed a port, as shop.example:8080"))
    }
}

impl Grant {
    /// What an operator's own target may reach: its origins, at whatever addresses they have.
    pub fn new(base: Url, origins: Vec<OriginGrant>, secrets: Secrets) -> Self {
        Self { base, origins, reach: Reach::Everywhere, secrets, narrowing: Narrowing::default(), host: None }
    }
}

/// Why a request is denied that its target's origin would allow.
const NARROWED: &str =
    "the operator allows this kind only what [plugins.limits.KIND] says under methods and path_prefixes";

/// What an operator allows a kind's requests to be, where that is less than everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Narrowing {
    /// These methods; nothing is every method.
    pub methods: Option<Vec<Method>>,
    /// Paths that begin with one of these, a whole segment at a time: `/api` allows `/api` and `/api/x` and not `/apix`.
    /// Nothing is every path.
    pub path_prefixes: Option<Vec<String>>,
}

/// Headers by which some servers take a request for one of another method or path.
const OVERRIDES: [&str; 13] = [
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-override-url",
    "x-rewrite-url",
    "x-forwarded-method",
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x-forwarded-uri",
    "x-real-url",
];

impl Narrowing {
    /// Whether a header may be sent; `name` is in lower case and has no underscores.
    pub(crate) fn check_header(&self, name: &str) -> Result<(), Error> {
        let narrowed = self.methods.is_some() || self.path_prefixes.is_some();
        if !narrowed || !OVERRIDES.contains(&name) {
            return Ok(());
        }
        Err(Error::Denied { what: format!("the header {name}"), why: NARROWED })
    }

    /// Whether a request may be made; its path is the one that is sent.
    pub(crate) fn check(&self, method: Method, path_and_query: &str) -> Result<(), Error> {
        let denied = |what: String| Err(Error::Denied { what, why: NARROWED });
        if self.methods.as_ref().is_some_and(|methods| !methods.contains(&method)) {
            return denied(format!("the method {}", method.as_str()));
        }
        let Some(prefixes) = &self.path_prefixes else { return Ok(()) };
        let path = path_and_query.split('?').next().unwrap_or_default();
        // A server may read these as what they stand for, and then the path as another one.
        let lower = path.to_ascii_lowercase();
        if let Some(odd) =
            ["%2f", "%5c", "%2e", "%25", "%3b", "%00", "//", ";"].iter().find(|odd| lower.contains(**odd))
        {
            return denied(format!("a path with {odd}"));
        }
        // Some servers read an overlong form of a character as that character, as %c0%ae for a dot.
        if std::str::from_utf8(&unescaped(path)).is_err() {
            return denied("a path that is not UTF-8 when it is decoded".to_owned());
        }
        let allows = |prefix: &String| {
            path.strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/'))
        };
        if prefixes.iter().any(allows) { Ok(()) } else { denied(format!("the path {path}")) }
    }
}

/// A path with its percent-encoded bytes.
fn unescaped(path: &str) -> Vec<u8> {
    let mut rest = path.as_bytes();
    let mut bytes = Vec::with_capacity(rest.len());
    while let [first, behind @ ..] = rest {
        let escaped = behind.get(..2).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        let (byte, left) = match escaped.filter(|_| *first == b'%') {
            Some(byte) => (byte, &behind[2..]),
            None => (*first, behind),
        };
        bytes.push(byte);
        rest = left;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_narrows_methods_and_paths() {
        let narrowing = Narrowing {
            methods: Some(vec![Method::Get]),
            path_prefixes: Some(vec!["/api2/json".to_owned(), "/health/".to_owned()]),
        };
        for path in ["/api2/json", "/api2/json/nodes?x=/..", "/health/", "/health/live"] {
            assert_eq!(narrowing.check(Method::Get, path), Ok(()), "{path}");
            assert!(narrowing.check(Method::Post, path).is_err(), "{path}");
        }
        for path in [
            "/",
            "/api2",
            "/api2/jsonx",
            "/api2/json/%2e%2e/access",
            "/api2/json/..%2Faccess",
            "/health",
            "/api2/json//x",
            "/api2/json/..;/access",
            "/api2/json/%252e%252e/access",
            "/api2/json/%c0%ae%c0%ae/access",
            "/api2/json%c0%afaccess",
            "/api2/json/%e0%80%af",
        ] {
            assert!(narrowing.check(Method::Get, path).is_err(), "{path}");
        }
        assert_eq!(narrowing.check(Method::Get, "/health/%c3%bc"), Ok(()));
        assert_eq!(Narrowing::default().check(Method::Delete, "/anything%2f"), Ok(()));
        for header in OVERRIDES {
            assert!(narrowing.check_header(header).is_err(), "{header}");
            assert_eq!(Narrowing::default().check_header(header), Ok(()), "{header}");
        }
        assert_eq!(narrowing.check_header("x-token"), Ok(()));
    }

    #[test]
    fn a_host_header_is_a_host_and_nothing_else() {
        for good in ["shop.example", "Shop.example:8080", "10.0.0.1", "[::1]:81"] {
            assert_eq!(host_header(good), Ok(()), "{good}");
        }
        for bad in ["", "a b", "a/b", "a@b", "a:b", "a\r\nb: c", "a?b", "a#b", "http://a", "a:99999", "0x7f.1"] {
            assert!(host_header(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn urls_become_origins() {
        for (url, origin) in [
            ("HTTP://Example.COM./x?y", "http://example.com"),
            ("https://a:8006", "https://a:8006"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
            ("http://2130706433/", "http://127.0.0.1"),
            ("http://0x7f.1/", "http://127.0.0.1"),
            ("https://bücher.example", "https://xn--bcher-kva.example"),
        ] {
            assert_eq!(Origin::parse(url).unwrap().1.to_string(), origin, "{url}");
        }
        for bad in [
            "",
            "a",
            "ftp://a",
            "file:///etc/passwd",
            "http://u:p@a",
            "http://u@a",
            "http://",
            "http://a:0",
            "http://a:99999",
        ] {
            assert!(Origin::parse(bad).is_err(), "{bad}");
        }
        let missing = |url: &str| Origin::parse(url).unwrap_err().to_string();
        assert!(missing("nas.lan:8080/x").ends_with("write http://nas.lan:8080/x or https://nas.lan:8080/x"));
        assert!(missing("nas.lan").contains("scheme is missing"));
        for secret in ["u:hunter2@a:8080", "http://u:hunter2@a", "http://u:hunter2@a:99999"] {
            assert!(!Origin::parse(secret).unwrap_err().to_string().contains("hunter2"));
        }
    }
}
