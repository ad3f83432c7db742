//! Tests every notation of forbidden addresses, in every place that can name an address.
//!
//! There are two checks: a request must match its target's origins before anything is sent (`check`), and a resolved
//! address must be allowed before a connection is made (`connect`). Each cell of the matrix has the check that must
//! deny it. `cargo test -p tests --test egress_matrix -- --nocapture` prints the summary.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use egress::{
    Config, Egress, Error, Grant, Limits, Narrowing, Origin, OriginGrant, Reach, Request, Resolve, Secrets, Session,
    Tls,
};
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

/// Addresses that are forbidden unless an operator configures them.
const FORBIDDEN_V4: [(&str, [u8; 4]); 6] = [
    ("metadata", [169, 254, 169, 254]),
    ("link-local", [169, 254, 0, 1]),
    ("another metadata", [100, 100, 100, 200]),
    ("unspecified", [0, 0, 0, 0]),
    ("multicast", [224, 0, 0, 1]),
    ("broadcast", [255, 255, 255, 255]),
];
const FORBIDDEN_V6: [(&str, &str); 5] = [
    ("link-local", "fe80::1"),
    ("metadata", "fd00:ec2::254"),
    ("unspecified", "::"),
    ("multicast", "ff02::1"),
    ("multicast", "ff0e::fb"),
];
/// The port of one of the host's own listeners. A real host may listen there during the test.
const OWN: u16 = 7411;

/// Returns every notation of an IPv4 address in a URL that some parser accepts.
fn notations_v4(address: [u8; 4]) -> Vec<(&'static str, String)> {
    let [a, b, c, d] = address;
    let number = u32::from_be_bytes(address);
    let tail = number & 0x00ff_ffff;
    let wide = |text: &str| -> String {
        let wide = |c: char| c.to_digit(10).and_then(|digit| char::from_u32(0xff10 + digit));
        text.chars().map(|c| wide(c).unwrap_or(c)).collect()
    };
    let dotted = format!("{a}.{b}.{c}.{d}");
    let (high, low) = (u32::from(a) << 8 | u32::from(b), u32::from(c) << 8 | u32::from(d));
    let mut all = vec![
        ("dotted", dotted.clone()),
        ("dotted, trailing dot", format!("{dotted}.")),
        ("decimal", number.to_string()),
        ("hexadecimal", format!("0x{number:x}")),
        ("hexadecimal, capitals", format!("0X{number:08X}")),
        ("octal", format!("0{number:o}")),
        ("hexadecimal parts", format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}")),
        ("octal parts", format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}")),
        ("leading zeros", format!("000{a:o}.000{b:o}.000{c:o}.000{d:o}")),
        ("mixed parts", format!("{a}.0x{b:x}.0{c:o}.{d}")),
        ("two parts", format!("{a}.{tail}")),
        ("three parts", format!("{a}.{b}.{low}")),
        ("percent-encoded", dotted.bytes().map(|byte| format!("%{byte:02x}")).collect()),
        ("wide digits", wide(&dotted)),
        ("ideographic dots", dotted.replace('.', "\u{3002}")),
    ];
    let mut wrapped = |name, address: String| all.push((name, format!("[{address}]")));
    wrapped("mapped, dotted", format!("::ffff:{dotted}"));
    wrapped("mapped, hexadecimal", format!("::ffff:{high:x}:{low:x}"));
    wrapped("mapped, in full", format!("0:0:0:0:0:FFFF:{high:04X}:{low:04X}"));
    if high != 0 {
        wrapped("compatible", format!("::{high:x}:{low:x}"));
    }
    wrapped("NAT64", format!("64:ff9b::{high:x}:{low:x}"));
    wrapped("NAT64, local", format!("64:ff9b:1::{high:x}:{low:x}"));
    wrapped("6to4", format!("2002:{high:x}:{low:x}::"));
    wrapped("Teredo", format!("2001:0:1:2:3:4:{:x}:{:x}", !high & 0xffff, !low & 0xffff));
    all
}

fn notations_v6(address: &str) -> Vec<(&'static str, String)> {
    let parsed: Ipv6Addr = address.parse().unwrap();
    let full: Vec<String> = parsed.segments().iter().map(|segment| format!("{segment:04x}")).collect();
    let plain: Vec<String> = parsed.segments().iter().map(|segment| format!("{segment:x}")).collect();
    vec![
        ("compressed", format!("[{address}]")),
        ("capitals", format!("[{}]", address.to_uppercase())),
        ("in full", format!("[{}]", full.join(":"))),
        ("uncompressed", format!("[{}]", plain.join(":"))),
    ]
}

/// Returns every notation with its description and the port of the request.
fn notations() -> Vec<(String, String, u16)> {
    let v4 = FORBIDDEN_V4.iter().flat_map(|(what, address)| {
        notations_v4(*address).into_iter().map(move |(how, text)| (format!("{what}, {how}"), text, 80))
    });
    let v6 = FORBIDDEN_V6.iter().flat_map(|(what, address)| {
        notations_v6(address).into_iter().map(move |(how, text)| (format!("{what} (IPv6), {how}"), text, 80))
    });
    // The loopback address at the port of one of the host's own listeners.
    let own = notations_v4([127, 0, 0, 1]).into_iter().map(|(how, text)| (format!("own listener, {how}"), text, OWN));
    v4.chain(v6).chain(own).collect()
}

/// Resolves names from a list of answers. The last answer for a name is repeated.
#[derive(Debug)]
struct Names {
    answers: BTreeMap<String, Vec<Vec<SocketAddr>>>,
    asked: AtomicUsize,
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let asked = self.asked.fetch_add(1, Ordering::SeqCst);
            let answers = self.answers.get(host).ok_or_else(|| io::Error::other("Name or service not known"))?;
            Ok(answers[asked.min(answers.len() - 1)].clone())
        })
    }
}

fn session(urls: &[&str], reach: Reach, answers: &[(&str, Vec<Vec<SocketAddr>>)]) -> Result<Session, String> {
    let answers = answers.iter().map(|(name, answers)| ((*name).to_owned(), answers.clone())).collect();
    let names = Arc::new(Names { answers, asked: AtomicUsize::new(0) });
    let own_listeners = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, OWN))];
    let egress = Egress::with_resolver(Config { own_listeners, ..Config::default() }, names);
    let parsed: Vec<_> =
        urls.iter().map(|url| Origin::parse(url)).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let tls = Tls::system().unwrap();
    let grant = Grant {
        base: parsed[0].0.clone(),
        origins: parsed.into_iter().map(|(_, origin)| OriginGrant { origin, tls: tls.clone() }).collect(),
        reach,
        secrets: Secrets::default(),
        narrowing: Narrowing::default(),
        host: None,
        reference_in_base: None,
        expands_path: false,
        short_captures: false,
    };
    let limits = Limits { requests: 10, body: 1 << 20, bodies: 1 << 20 };
    let lane = egress.lane(tokio::runtime::Handle::current());
    Ok(Session::new(lane, Arc::new(grant), limits, Instant::now() + Duration::from_secs(5)))
}

/// Starts a server that closes the connection after each response, so that each request needs a new connection.
async fn server(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

const FINE: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\nfine";

/// The check that denied a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Door {
    /// Denied before anything was sent: the origin is not the target's, or the request is invalid.
    Check,
    /// Denied after name resolution: the address is forbidden.
    Connect,
    /// The URL is invalid: a target with it cannot be configured.
    Url,
    /// The request was allowed.
    Open,
}

fn door(result: &Result<egress::Response, Error>) -> Door {
    match result {
        Err(Error::Denied { what, .. }) if what.contains("is not an origin") => Door::Check,
        Err(Error::BadRequest(_)) => Door::Check,
        Err(Error::Denied { what, .. }) if what.contains("may not reach") => Door::Connect,
        other => {
            eprintln!("allowed: {other:?}");
            Door::Open
        }
    }
}

async fn fetch(session: &Session, path: &str) -> Door {
    door(&session.fetch(Request::get(path)).await)
}

#[tokio::test]
async fn forbidden_addresses_are_denied_in_every_notation() {
    let fine = server(FINE).await;
    let honest = format!("http://honest.example:{}/", fine.port());
    let leads = |to: Vec<Vec<SocketAddr>>| [("honest.example", to)];
    let mut cells: BTreeMap<(&str, Door), usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut note = |way: &'static str, what: &str, found: Door, expected: &[Door]| {
        *cells.entry((way, found)).or_default() += 1;
        if !expected.contains(&found) {
            wrong.push(format!("{way}: {what}: {found:?}, expected {expected:?}"));
        }
    };
    for (what, host, port) in notations() {
        let url = format!("http://{host}:{port}/latest/meta-data/");
        // A target names the address, as its URL or in `also`.
        for (way, urls) in [("url", vec![url.as_str()]), ("also", vec![honest.as_str(), url.as_str()])] {
            let found = match session(&urls, Reach::Public { except: vec![] }, &leads(vec![vec![fine]])) {
                Ok(session) => fetch(&session, &url).await,
                Err(_) => Door::Url,
            };
            note(way, &what, found, &[Door::Connect, Door::Url]);
        }
        // A plugin names the address, directly or after a redirect.
        let session = session(&[&honest], Reach::Everywhere, &leads(vec![vec![fine]])).unwrap();
        note("absolute path", &what, fetch(&session, &url).await, &[Door::Check]);
        let relative = format!("//{host}:{port}/");
        note("path without scheme", &what, fetch(&session, &relative).await, &[Door::Check]);
        let location: &'static str =
            format!("HTTP/1.1 302 Found\r\nconnection: close\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n").leak();
        let redirecting = server(location).await;
        let target = format!("http://honest.example:{}/", redirecting.port());
        let session = self::session(&[&target], Reach::Everywhere, &leads(vec![vec![redirecting]])).unwrap();
        let answer = session.fetch(Request::get("")).await.unwrap();
        assert_eq!(answer.status, 302, "a redirect is returned as a response");
        let location = &answer.headers.iter().find(|(name, _)| name == "location").unwrap().1;
        note("redirect", &what, fetch(&session, location).await, &[Door::Check]);
    }
    for (what, ip, port) in addresses() {
        let bad = SocketAddr::new(ip, port);
        let at = format!("http://honest.example:{port}/");
        // A name resolves to the address: alone, twice, or at the second request only.
        let session = session(&[&at], Reach::Everywhere, &leads(vec![vec![bad]])).unwrap();
        note("DNS answer", &what, fetch(&session, "").await, &[Door::Connect]);
        let session = self::session(&[&at], Reach::Everywhere, &leads(vec![vec![bad, bad]])).unwrap();
        note("DNS answers, all bad", &what, fetch(&session, "").await, &[Door::Connect]);
        let bad = SocketAddr::new(ip, fine.port());
        if port == OWN {
            continue;
        }
        let session = self::session(&[&honest], Reach::Everywhere, &leads(vec![vec![fine], vec![bad]])).unwrap();
        let first = session.fetch(Request::get("")).await;
        assert!(first.is_ok(), "{what}: {first:?}");
        note("DNS that changes its answer", &what, fetch(&session, "").await, &[Door::Connect]);
        // If a name has an allowed and a forbidden address, only the allowed one is used.
        let session = self::session(&[&honest], Reach::Everywhere, &leads(vec![vec![bad, fine]])).unwrap();
        let mixed = session.fetch(Request::get("")).await;
        note("DNS answers, one good", &what, if mixed.is_ok() { Door::Connect } else { Door::Open }, &[Door::Connect]);
    }
    let count: usize = cells.values().sum();
    println!("{:<28} {:>6} {:>8} {:>6}", "WAY", "CHECK", "CONNECT", "NO URL");
    let ways: std::collections::BTreeSet<&str> = cells.keys().map(|(way, _)| *way).collect();
    for way in ways {
        let at = |door| cells.get(&(way, door)).copied().unwrap_or_default();
        println!("{way:<28} {:>6} {:>8} {:>6}", at(Door::Check), at(Door::Connect), at(Door::Url));
    }
    println!("{count} cells, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 400, "{count} cells");
}

/// Returns every forbidden address as a resolver may return it: plain, or embedded in an IPv6 address.
fn addresses() -> Vec<(String, IpAddr, u16)> {
    notations()
        .into_iter()
        .filter_map(|(what, host, port)| {
            let ip: IpAddr = host.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
            Some((what, ip, port))
        })
        .collect()
}

/// The same notations of an allowed address, to detect checks that deny everything.
#[tokio::test]
async fn allowed_addresses_are_reached_in_every_notation() {
    let fine = server(FINE).await;
    let mut open = 0;
    for (how, host) in notations_v4([127, 0, 0, 1]) {
        if host.starts_with('[') {
            continue;
        }
        let url = format!("http://{host}:{}/", fine.port());
        let session = session(&[&url], Reach::Everywhere, &[]).unwrap();
        let answer = session.fetch(Request::get("")).await.unwrap_or_else(|error| panic!("{how}: {url}: {error}"));
        assert_eq!(answer.body, b"fine");
        open += 1;
    }
    assert_eq!(open, 15);
    // A configured address is allowed even if it is forbidden otherwise, whether a server listens there or not.
    let session = session(&["http://127.0.0.1:7411/"], Reach::Everywhere, &[]).unwrap();
    if let Err(error) = session.fetch(Request::get("")).await {
        assert_eq!(error.code(), "connect_refused");
    }
}
