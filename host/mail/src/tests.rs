//! Messages are sent to a scripted mail server on loopback. `tests/receivers.sh` sends to a real one.

use super::*;
use egress::{Fingerprint, Origin, Secrets, Tls};
use model::{AlertEvent, Before, Class, NotifiedAlert, Status, Subject};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufStream};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use url::Url;

const PASSWORD_VALUE: &str = "correct horse";

/// The behaviour of a scripted server.
#[derive(Clone, Copy, Default)]
struct Script {
    /// Replies in place of the usual ones, by the beginning of the command.
    instead: &'static [(&'static str, &'static str)],
    tls_from_the_start: bool,
}

/// The lines that a server received.
type Received = tokio::task::JoinHandle<Vec<String>>;

/// A server of one connection, with a certificate for `localhost`: its account settings, and what it received.
async fn server(script: Script) -> (OriginGrant, Received) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = Origin {
        https: script.tls_from_the_start,
        host: "localhost".into(),
        port: listener.local_addr().unwrap().port(),
    };
    let file = tempfile(&made.cert.pem());
    let tls = Tls::ca_file(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    let received = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut lines = Vec::new();
        if script.tls_from_the_start {
            let Ok(stream) = acceptor.accept(tcp).await else { return lines };
            serve(BufStream::new(stream), script, true, &mut lines).await;
            return lines;
        }
        let left = serve(BufStream::new(tcp), script, true, &mut lines).await;
        if let Some(stream) = left {
            let Ok(stream) = acceptor.accept(stream.into_inner()).await else { return lines };
            lines.push("(TLS)".to_owned());
            serve(BufStream::new(stream), script, false, &mut lines).await;
        }
        lines
    });
    (OriginGrant { origin, tls }, received)
}

fn tempfile(content: &str) -> std::path::PathBuf {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("polliwog-mail-{}-{number}.pem", std::process::id()));
    std::fs::write(&file, content).unwrap();
    file
}

/// Speaks SMTP. Returns the stream if TLS follows.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: BufStream<S>,
    script: Script,
    greets: bool,
    lines: &mut Vec<String>,
) -> Option<BufStream<S>> {
    let reply = |command: &str, usual: &'static str| {
        let own = script.instead.iter().find(|(start, _)| command.starts_with(start));
        format!("{}\r\n", own.map_or(usual, |(_, reply)| reply))
    };
    if greets {
        stream.write_all(reply("(connect)", "220 localhost ESMTP").as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
    }
    let mut is_content = false;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        lines.push(line.clone());
        if is_content && line != "." {
            continue;
        }
        let usual = match line.split(' ').next().unwrap_or_default() {
            "EHLO" => "250-localhost\r\n250-STARTTLS\r\n250 AUTH PLAIN LOGIN",
            "STARTTLS" => "220 go ahead",
            "AUTH" => "235 welcome",
            "DATA" => "354 go on",
            "QUIT" => "221 bye",
            _ => "250 fine",
        };
        is_content = line == "DATA";
        let reply = reply(&line, usual);
        stream.write_all(reply.as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
        if line == "STARTTLS" && reply.starts_with('2') {
            return Some(stream);
        }
    }
}

fn settings(more: Value) -> Value {
    let mut settings = json!({ "from": "Polliwog <polliwog@example.com>", "to": ["ops@example.com", "b@example.com"] });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

fn account(server: OriginGrant, more: Value, password: Option<&str>) -> Account {
    let settings = Settings::read(&settings(more), password.is_some(), server.origin.https).unwrap();
    let secrets = password.map(|value| (PASSWORD.to_owned(), SecretString::from(value))).into_iter().collect();
    let base = Url::parse("smtp://localhost").unwrap();
    let grant = Arc::new(Grant::new(base, vec![server], Secrets::new(secrets).unwrap()));
    Account { grant, settings, password: password.map(SecretString::from) }
}

fn alert(event: AlertEvent, since: i64) -> NotifiedAlert {
    let resolved_at = (event == AlertEvent::Resolved).then(|| Timestamp::from_millis(since + 720_000));
    NotifiedAlert {
        fingerprint: "f00d".to_owned(),
        event,
        subject: Subject::new(Class::Dependency, "shop", "database").unwrap(),
        status: if resolved_at.is_some() { Status::Ok } else { Status::Critical },
        target_name: "Shop".to_owned(),
        kind: "http".to_owned(),
        title: "Database".to_owned(),
        summary: "connection refused by <db>\r\nBcc: x@example.com".to_owned(),
        since: Timestamp::from_millis(since),
        resolved_at,
        labels: vec![("site".to_owned(), "zürich".to_owned())],
        link: Some("http://polliwog.lan/targets/shop".to_owned()),
        object_link: None,
        suppresses: 2,
        before: Before::Unknown,
    }
}

fn notification(alerts: Vec<NotifiedAlert>) -> Notification {
    Notification {
        number: 7,
        id: "0007".to_owned(),
        channel: "mail".to_owned(),
        route: "all".to_owned(),
        group: Vec::new(),
        alerts,
        omitted: 0,
        unlisted: Vec::new(),
        link: None,
    }
}

const START: i64 = 1_790_000_000_000;

async fn send(account: &Account, alerts: Vec<NotifiedAlert>) -> Result<Option<String>, Failure> {
    let now = Timestamp::from_millis(START + 720_000);
    let egress = Egress::new(egress::Config::default());
    account.send(&egress, &notification(alerts), now, Duration::from_secs(20)).await
}

#[tokio::test]
async fn a_message_is_sent_after_starttls_with_the_password_inside_it() {
    let (server, received) = server(Script::default()).await;
    let account = account(server, json!({ "user": "polliwog" }), Some(PASSWORD_VALUE));
    send(&account, vec![alert(AlertEvent::Firing, START)]).await.unwrap();
    drop(account);
    let lines = received.await.unwrap();
    let place = |start: &str| {
        lines.iter().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {lines:#?}"))
    };
    assert!(place("STARTTLS") < place("(TLS)") && place("(TLS)") < place("AUTH PLAIN "), "{lines:#?}");
    assert!(place("MAIL FROM:<polliwog@example.com>") < place("RCPT TO:<ops@example.com>"));
    place("RCPT TO:<b@example.com>");
    for header in [
        "From: Polliwog <polliwog@example.com>",
        "To: ops@example.com, b@example.com",
        "Subject: Critical: Database (Shop)",
        "Message-ID: <0007@polliwog.invalid>",
        "References: <f00d.1790000000000@polliwog.invalid>",
        "In-Reply-To: <f00d.1790000000000@polliwog.invalid>",
        "Auto-Submitted: auto-generated",
        "Content-Type: multipart/alternative;",
    ] {
        place(header);
    }
}

#[tokio::test]
async fn smtps_and_a_relay_without_tls_are_served() {
    let (secure, received) = server(Script { tls_from_the_start: true, ..Script::default() }).await;
    send(&account(secure, json!({}), None), vec![alert(AlertEvent::Resolved, START)]).await.unwrap();
    assert!(received.await.unwrap().contains(&"Subject: Resolved: Database (Shop)".to_owned()));
    let (relay, received) = server(Script::default()).await;
    send(&account(relay, json!({ "encryption": "none" }), None), vec![alert(AlertEvent::Firing, START)]).await.unwrap();
    assert!(!received.await.unwrap().contains(&"STARTTLS".to_owned()));
}

#[tokio::test]
async fn each_refusal_is_told_from_a_failure_that_passes() {
    type Case = (&'static [(&'static str, &'static str)], &'static str, FailureCategory, &'static str);
    let cases: [Case; 11] = [
        (&[("(connect)", "HTTP/1.1 400 Bad Request")], "protocol", FailureCategory::Transient, "which is not SMTP"),
        (&[("(connect)", "421 busy")], "forbidden", FailureCategory::Transient, "421 busy"),
        (&[("STARTTLS", "502 no")], "tls_missing", FailureCategory::Misconfigured, "does not offer STARTTLS"),
        (&[("AUTH", "535 5.7.8 wrong")], "unauthorized", FailureCategory::Misconfigured, "(535 5.7.8): check the user"),
        (&[("AUTH", "535 correct horse")], "unauthorized", FailureCategory::Misconfigured, "(535): check the user"),
        (&[("MAIL", "550 correct horse")], "forbidden", FailureCategory::Misconfigured, "550 "),
        (&[("EHLO", "250-a\r\n250 STARTTLS")], "unauthorized", FailureCategory::Misconfigured, "offers no log-in"),
        (&[("AUTH", "454 later")], "forbidden", FailureCategory::Transient, "454 later"),
        (
            &[("RCPT", "550 no one")],
            "forbidden",
            FailureCategory::Misconfigured,
            "the recipient ops@example.com: 550 no one",
        ),
        (&[(".", "451 greylisted")], "forbidden", FailureCategory::Transient, "451 greylisted"),
        (&[(".", "354 go on")], "forbidden", FailureCategory::Transient, "354 at its end"),
    ];
    for (instead, code, category, text) in cases {
        let (server, received) = server(Script { instead, ..Script::default() }).await;
        let account = account(server, json!({ "user": "polliwog" }), Some(PASSWORD_VALUE));
        let failure = send(&account, vec![alert(AlertEvent::Firing, START)]).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.category), (code, category), "{failure:?}");
        assert!(failure.message.contains(text) && !failure.message.contains(PASSWORD_VALUE), "{failure:?}");
        received.abort();
    }
}

#[tokio::test]
async fn a_refused_recipient_keeps_the_message_from_no_one_else() {
    let script = Script { instead: &[("RCPT TO:<b@", "550 no such user")], ..Script::default() };
    let (server, received) = server(script).await;
    let refused = send(&account(server, json!({}), None), vec![alert(AlertEvent::Firing, START)]).await.unwrap();
    assert!(
        refused.as_ref().is_some_and(|why| why.contains("the recipient b@example.com: 550 no such user")),
        "{refused:?}"
    );
    assert!(received.await.unwrap().contains(&"Subject: Critical: Database (Shop)".to_owned()));
}

#[tokio::test]
async fn an_endless_answer_ends_the_connection() {
    let endless: &'static str = Box::leak(format!("250 {}", "x".repeat(100_000)).into_boxed_str());
    let instead: &'static [(&'static str, &'static str)] = Box::leak(Box::new([("MAIL", endless)]));
    let (server, received) = server(Script { instead, ..Script::default() }).await;
    let account = account(server, json!({}), None);
    let failure = send(&account, vec![alert(AlertEvent::Firing, START)]).await.unwrap_err();
    assert!(failure.message.contains("its answers are longer than 64 KiB"), "{failure:?}");
    received.abort();
}

#[tokio::test]
async fn a_server_with_another_certificate_never_receives_the_password() {
    let (server, received) = server(Script::default()).await;
    let pin = Fingerprint::parse(&"ab".repeat(32)).unwrap();
    let server = OriginGrant { tls: Tls::pinned(BTreeSet::from([pin])).unwrap(), ..server };
    let account = account(server, json!({ "user": "polliwog" }), Some(PASSWORD_VALUE));
    let failure = send(&account, vec![alert(AlertEvent::Firing, START)]).await.unwrap_err();
    assert_eq!(failure.code, "tls_fingerprint_mismatch", "{failure:?}");
    let lines = received.await.unwrap();
    assert_eq!(lines.iter().filter(|line| line.starts_with("AUTH")).count(), 0, "{lines:?}");
}

#[test]
fn texts_name_each_fact_and_html_is_escaped() {
    let settings = Settings::read(&settings(json!({})), false, false).unwrap();
    let (now, firing) = (Timestamp::from_millis(START + 720_000), alert(AlertEvent::Firing, START));
    let formatted = |alerts| {
        String::from_utf8(message::compose(&settings, &notification(alerts), now).unwrap().formatted()).unwrap()
    };
    let one = formatted(vec![firing.clone()]).replace("=\r\n", "");
    for part in [
        "Critical: Database (Shop)",
        "What    connection refused by <db>",
        "Since   2026-09-21 14:13:20 UTC (12 min)",
        "Affects 2 more alerts are explained by this one",
        "Page    http://polliwog.lan/targets/shop",
        "connection refused by &lt;db&gt;",
    ] {
        assert!(one.contains(part), "{part}: {one}");
    }
    let head = one.split("\r\n\r\n").next().unwrap();
    assert!(!head.contains("Bcc:"), "{head}");
    let long = NotifiedAlert { title: "é\r\n".repeat(500), ..firing.clone() };
    assert!(!formatted(vec![long]).split("\r\n\r\n").next().unwrap().contains("\r\n\u{e9}"));
    let several = formatted(vec![firing, alert(AlertEvent::Resolved, START - 5)]);
    assert!(several.contains("Subject: Shop: 1 critical, 1 resolved"), "{several}");
    let threads = "References: <f00d.1790000000000@polliwog.invalid>";
    assert!(several.contains(threads) && several.contains("<f00d.1789999999995@polliwog.invalid>"), "{several}");
}

#[test]
fn wrong_settings_are_named() {
    for (more, has_password, is_tls, setting, expected) in [
        (json!({ "from": "no-one" }), false, false, Some("from"), "\"no-one\" is not an address"),
        (json!({ "to": [] }), false, false, Some("to"), "1 to 100 recipients"),
        (json!({ "to": ["a@b", "c"] }), false, false, Some("to"), "\"c\" is not an address"),
        (json!({ "user": "" }), false, false, Some("user"), "not empty"),
        (json!({ "user": "a" }), false, false, Some("user"), "belong together"),
        (json!({}), true, false, Some("user"), "belong together"),
        (json!({ "encryption": "yes" }), false, false, Some("encryption"), "\"required\" or \"none\""),
        (json!({ "encryption": "none", "user": "a" }), true, false, Some("encryption"), "over TLS only"),
        (json!({ "encryption": "none" }), false, true, Some("encryption"), "begins with smtps"),
        (json!({ "form": "a@b" }), false, false, None, "\"form\" is not a setting of kind email"),
    ] {
        let problems = Settings::read(&settings(more.clone()), has_password, is_tls).unwrap_err();
        let found = problems.iter().any(|problem| problem.setting == setting && problem.message.contains(expected));
        assert!(found, "{more}: {problems:?}");
    }
    assert!(Settings::read(&json!({ "from": "a@b.c", "to": "Ops <d@e.f>" }), false, false).is_ok());
}
