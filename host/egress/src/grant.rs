//! The network access that one target is granted.

use crate::{Error, Method, Reach, Secrets, Tls};
use ring::hmac;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use url::{Host, Position, Url};

/// The scheme, host and port of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Whether a connection has TLS from the start: `true` for https and smtps, `false` for http and smtp.
    pub https: bool,
    /// The lower-case host name, or an IP address without brackets.
    pub host: Arc<str>,
    /// The TCP port, never 0.
    pub port: u16,
}

/// An error for a URL that cannot be requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is not a usable URL: {why}")]
pub struct InvalidUrl {
    url: String,
    why: String,
}

impl InvalidUrl {
    fn new(url: &Url, why: &str) -> Self {
        Self { url: without_password(url), why: why.to_owned() }
    }
}

impl Origin {
    /// Returns the origin of a URL. Fails if the scheme is not http or https, or if the URL has user information.
    pub fn of(url: &Url) -> Result<Self, InvalidUrl> {
        match url.scheme() {
            "http" => Self::of_server(url, false, 80),
            "https" => Self::of_server(url, true, 443),
            _ => Err(InvalidUrl::new(url, "only http and https are supported")),
        }
    }

    /// Returns the origin of a mail server: `smtp://` for STARTTLS (port 587), `smtps://` for TLS from the start (port
    /// 465). Fails for other schemes, or if the URL has user information or a path.
    pub fn of_mail(url: &Url) -> Result<Self, InvalidUrl> {
        if !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err(InvalidUrl::new(url, "a mail server has no path"));
        }
        match url.scheme() {
            "smtp" => Self::of_server(url, false, 587),
            "smtps" => Self::of_server(url, true, 465),
            _ => Err(InvalidUrl::new(url, "a mail server is written as smtp://host:587 or smtps://host:465")),
        }
    }

    fn of_server(url: &Url, https: bool, port: u16) -> Result<Self, InvalidUrl> {
        let invalid = |why: &str| InvalidUrl::new(url, why);
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("it contains a user name or password: use a secret instead"));
        }
        let host = match url.host() {
            // Only hosts of http and https are in lower case already.
            Some(Host::Domain(name)) => name.trim_end_matches('.').to_ascii_lowercase(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => return Err(invalid("it has no host")),
        };
        match url.port().unwrap_or(port) {
            port @ 1.. if !host.is_empty() => Ok(Self { https, host: host.into(), port }),
            _ => Err(invalid("it has no host or port")),
        }
    }

    /// Parses the URL of a mail server and returns it with its origin.
    pub fn parse_mail(text: &str) -> Result<(Url, Self), InvalidUrl> {
        let url = Url::parse(text).map_err(|error| InvalidUrl {
            url: text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, rest)| format!("…@{rest}")),
            why: format!("{error}; write it as smtp://host:587 or smtps://host:465"),
        })?;
        let origin = Self::of_mail(&url)?;
        Ok((url, origin))
    }

    /// Parses a URL and returns it with its origin.
    pub fn parse(text: &str) -> Result<(Url, Self), InvalidUrl> {
        let url = Url::parse(text).map_err(|error| InvalidUrl {
            // The text before an @ may be a password.
            url: text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, rest)| format!("…@{rest}")),
            why: match text.contains("://") {
                true => format!("{error}; write it as https://host:port/path"),
                false => "its scheme is missing; write it as http://host:port/path, or https://".to_owned(),
            },
        })?;
        if !text.contains("://") && !matches!(url.scheme(), "http" | "https") {
            // `nas.lan:8080` parses as a URL with the scheme `nas.lan`. The text before an @ may be a password.
            let shown = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
            let why = format!("its scheme is missing; write http://{shown} or https://{shown}");
            return Err(InvalidUrl { url: shown.to_owned(), why });
        }
        let origin = Self::of(&url)?;
        Ok((url, origin))
    }

    /// Returns whether a URL has this origin in the same spelling. `false` decides nothing: see [`Self::of`].
    pub(crate) fn is_written_in(&self, url: &Url) -> bool {
        url.scheme() == if self.https { "https" } else { "http" }
            && url.host_str() == Some(&*self.host)
            && url.port_or_known_default() == Some(self.port)
            && url.username().is_empty()
            && url.password().is_none()
    }

    /// Returns whether another origin belongs to the same site, where redirects usually lead: the same host, with or
    /// without `www.`, on the default ports, and not from https to http.
    pub(crate) fn has_in_site(&self, other: &Self) -> bool {
        let is_default = |origin: &Self| origin.port == if origin.https { 443 } else { 80 };
        let bare = |origin: &Self| origin.host.strip_prefix("www.").unwrap_or(&origin.host).to_owned();
        let is_same = self.host == other.host
            || self.address().is_none() && other.address().is_none() && bare(self) == bare(other);
        is_default(self) && is_default(other) && (other.https || !self.https) && is_same
    }

    /// Returns the IP address. `None` if the host is a name.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Returns host and port in the form of a `Host` header. The default port of the scheme is omitted.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_string() };
        let implied = if self.https { 443 } else { 80 };
        if self.port == implied { host } else { format!("{host}:{}", self.port) }
    }
}

/// Returns the origin of a URL, and the path and query to send.
pub fn requested(url: &Url) -> Result<(Origin, String), InvalidUrl> {
    Ok((Origin::of(url)?, path_and_query(url)))
}

/// Returns the path and query of a URL.
pub(crate) fn path_and_query(url: &Url) -> String {
    url[Position::BeforePath..Position::AfterQuery].to_owned()
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

/// One origin that a target may request, with its TLS settings.
#[derive(Clone, Debug)]
pub struct OriginGrant {
    /// The granted origin.
    pub origin: Origin,
    /// How the certificate of the origin is verified.
    pub tls: Tls,
}

/// The network access of one target: origins, addresses and secrets.
#[derive(Debug)]
pub struct Grant {
    /// The target's URL. Paths of requests are resolved against it.
    pub base: Url,
    /// The origin of the target's URL first, then the origins of `also`.
    pub origins: Vec<OriginGrant>,
    /// The addresses that the host names of the origins may resolve to.
    pub reach: Reach,
    /// The secrets that requests may use.
    pub secrets: Secrets,
    /// Restrictions by the operator.
    pub narrowing: Narrowing,
    /// The value of the `Host` header for requests to the target's own origin, and the name for its TLS. `None`
    /// stands for the host of the URL. See [`host_header`].
    pub host: Option<String>,
    /// The target's URL as its operator wrote it, if it refers to a secret. `None` stands for [`Self::base`].
    pub reference_in_base: Option<String>,
    /// Whether the path of a request may contain secrets. The receivers of notifications identify their senders by it.
    pub expands_path: bool,
    /// Whether captured values may be shorter than 8 bytes.
    pub short_captures: bool,
}

/// Checks that a text is a valid `Host` header: a name or an address, with an optional port. The error is one sentence.
pub fn host_header(text: &str) -> Result<(), String> {
    let parsed = Url::parse(&format!("http://{text}/")).ok();
    let same = parsed.is_some_and(|url| {
        let written = url.port().map_or_else(String::new, |port| format!(":{port}"));
        url.host_str().is_some_and(|host| text.eq_ignore_ascii_case(&format!("{host}{written}")))
    });
    if same {
        Ok(())
    } else {
        Err(format!("{text:?} is not a host: write a name and an optional port, for example shop.example:8080"))
    }
}

/// Returns the name in a `Host` header, in lower case and without the port and brackets: the name for TLS.
pub(crate) fn server_name(host: &str) -> Arc<str> {
    let name = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.to_ascii_lowercase().into()
}

impl Grant {
    /// Returns a digest of all that decides who gets what: origins, TLS, the host header, and the names and values of
    /// secrets. `key` is a secret of this installation.
    pub fn digest(&self, key: &[u8]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
        let mut add = |part: &[u8]| {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        };
        for OriginGrant { origin, tls } in &self.origins {
            add(origin.to_string().as_bytes());
            add(tls.identity().as_bytes());
        }
        add(self.host.as_deref().unwrap_or_default().as_bytes());
        for (name, value) in self.secrets.exposed() {
            add(name.as_bytes());
            add(value.as_bytes());
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }

    /// Returns the grant of a target from the configuration file: its origins, at any address.
    pub fn new(base: Url, origins: Vec<OriginGrant>, secrets: Secrets) -> Self {
        let (reach, narrowing) = (Reach::Everywhere, Narrowing::default());
        Self {
            base,
            origins,
            reach,
            secrets,
            narrowing,
            host: None,
            reference_in_base: None,
            expands_path: false,
            short_captures: false,
        }
    }
}

/// The reason why a request to a granted origin is denied.
pub(crate) const NARROWED: &str = "methods and path_prefixes in [plugins.limits.KIND] do not allow it for this kind";

/// Restrictions of the requests of a kind, set by the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Narrowing {
    /// The allowed methods. `None` allows every method.
    pub methods: Option<Vec<Method>>,
    /// Allowed path prefixes. A prefix matches whole segments: `/api` allows `/api` and `/api/x` but not `/apix`.
    /// `None` allows every path.
    pub path_prefixes: Option<Vec<String>>,
}

/// Headers with which a request can override its method or path on some servers.
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
    /// Checks that a header is allowed. `name` must be in lower case and without underscores.
    pub(crate) fn check_header(&self, name: &str) -> Result<(), Error> {
        let narrowed = self.methods.is_some() || self.path_prefixes.is_some();
        if !narrowed || !OVERRIDES.contains(&name) {
            return Ok(());
        }
        Err(Error::Denied { what: format!("the header {name}"), why: NARROWED })
    }

    /// Checks that a method and path are allowed. The path must be the one that is sent.
    pub(crate) fn check(&self, method: &Method, path_and_query: &str) -> Result<(), Error> {
        let denied = |what: String| Err(Error::Denied { what, why: NARROWED });
        if self.methods.as_ref().is_some_and(|methods| !methods.contains(method)) {
            return denied(format!("the method {}", method.as_str()));
        }
        let Some(prefixes) = &self.path_prefixes else { return Ok(()) };
        let path = path_and_query.split('?').next().unwrap_or_default();
        // A server may decode these sequences and then see a different path.
        let lower = path.to_ascii_lowercase();
        if let Some(odd) =
            ["%2f", "%5c", "%2e", "%25", "%3b", "%00", "//", ";"].iter().find(|odd| lower.contains(**odd))
        {
            return denied(format!("a path with {odd}"));
        }
        // Some servers decode an overlong UTF-8 sequence to the plain character, for example %c0%ae to a dot.
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

/// Returns the bytes of a path with its percent encoding decoded.
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
    fn an_origin_in_the_same_spelling_is_the_origin_of_the_url() {
        let (_, origin) = Origin::parse("http://nas.lan:8080").unwrap();
        let written = |text: &str| origin.is_written_in(&Url::parse(text).unwrap());
        assert!(written("http://nas.lan:8080/x?y") && written("http://NAS.lan:8080"));
        for other in [
            "http://nas.lan/",
            "https://nas.lan:8080/",
            "http://nas.lan:8081/",
            "http://nas.lan.:8080/",
            "http://me@nas.lan:8080/",
            "http://:secret@nas.lan:8080/",
            "http://nas.lan.evil:8080/",
            "ftp://nas.lan:8080/",
            "data:nas.lan",
        ] {
            assert!(!written(other), "{other}");
        }
        for text in ["http://127.0.0.1/", "https://nas.lan/", "http://[::1]:80/"] {
            let (url, origin) = Origin::parse(text).unwrap();
            assert_eq!(origin.is_written_in(&url), !text.contains('['), "{text}");
        }
    }

    #[test]
    fn narrowing_allows_only_listed_methods_and_path_prefixes() {
        let narrowing = Narrowing {
            methods: Some(vec![Method::GET]),
            path_prefixes: Some(vec!["/api2/json".to_owned(), "/health/".to_owned()]),
        };
        for path in ["/api2/json", "/api2/json/nodes?x=/..", "/health/", "/health/live"] {
            assert_eq!(narrowing.check(&Method::GET, path), Ok(()), "{path}");
            assert!(narrowing.check(&Method::POST, path).is_err(), "{path}");
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
            assert!(narrowing.check(&Method::GET, path).is_err(), "{path}");
        }
        assert_eq!(narrowing.check(&Method::GET, "/health/%c3%bc"), Ok(()));
        assert_eq!(Narrowing::default().check(&Method::DELETE, "/anything%2f"), Ok(()));
        for header in OVERRIDES {
            assert!(narrowing.check_header(header).is_err(), "{header}");
            assert_eq!(Narrowing::default().check_header(header), Ok(()), "{header}");
        }
        assert_eq!(narrowing.check_header("x-token"), Ok(()));
    }

    #[test]
    fn a_site_has_one_name_on_the_default_ports_and_does_not_leave_https() {
        let origin = |url: &str| Origin::parse(url).unwrap().1;
        for (from, to, expected) in [
            ("http://a.example", "https://a.example", true),
            ("http://a.example", "https://www.a.example", true),
            ("https://www.a.example", "https://a.example/x", true),
            ("http://www.a.example", "http://a.example", true),
            ("http://10.0.0.1", "https://10.0.0.1", true),
            ("https://a.example", "http://a.example", false),
            ("https://a.example", "http://www.a.example", false),
            ("http://a.example", "https://b.example", false),
            ("http://a.example", "https://shop.a.example", false),
            ("http://a.example", "https://www.www.a.example", false),
            ("http://a.example:8080", "https://a.example", false),
            ("http://a.example", "https://a.example:8443", false),
            ("http://a.example", "http://a.example:8080", false),
        ] {
            assert_eq!(origin(from).has_in_site(&origin(to)), expected, "{from} {to}");
        }
        assert_eq!(&*server_name("Shop.example:8443"), "shop.example");
        assert_eq!(&*server_name("[::1]:8443"), "::1");
    }

    #[test]
    fn host_header_accepts_only_a_host_with_an_optional_port() {
        for good in ["shop.example", "Shop.example:8080", "10.0.0.1", "[::1]:81"] {
            assert_eq!(host_header(good), Ok(()), "{good}");
        }
        for bad in ["", "a b", "a/b", "a@b", "a:b", "a\r\nb: c", "a?b", "a#b", "http://a", "a:99999", "0x7f.1"] {
            assert!(host_header(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn mail_servers_have_their_own_schemes_and_ports() {
        let read = |url: &str| Origin::parse_mail(url).map(|(_, origin)| origin);
        let origin = |https, host: &str, port| Origin { https, host: host.into(), port };
        assert_eq!(read("smtp://Mail.Lan").unwrap(), origin(false, "mail.lan", 587));
        assert_eq!(read("smtps://mail.lan/").unwrap(), origin(true, "mail.lan", 465));
        assert_eq!(read("smtp://[::1]:25").unwrap(), origin(false, "::1", 25));
        for bad in
            ["http://mail.lan", "mail.lan:25", "smtp://", "smtp://a:0", "smtp://u:p@a", "smtp://a/b", "smtp://a?b"]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(!read("smtp://u:hunter2@a").unwrap_err().to_string().contains("hunter2"));
        assert!(Origin::parse("smtp://mail.lan").is_err());
    }

    #[test]
    fn origins_are_parsed_from_valid_urls_and_errors_hide_passwords() {
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
