//! Examining how an origin is reached.

use super::certificates::{pinned, self_signed, tls_server};
use super::*;

/// Examines a URL. Returns the name, the outcome and the fingerprint of each step.
async fn probed(url: &str, tls: Tls, reach: Reach) -> Vec<(&'static str, Result<String, String>, Option<String>)> {
    let (_, origin) = Origin::parse(url).unwrap();
    let egress = Egress::new(Config::default());
    let steps = egress.probe(&OriginGrant { origin, tls }, (None, &reach), Duration::from_secs(20)).await;
    let outcome = |step: ProbeStep| {
        let fingerprint = step.certificate.map(|certificate| certificate.fingerprint);
        (step.name, step.result.map_err(|error| error.code().to_owned()), fingerprint)
    };
    steps.into_iter().map(outcome).collect()
}

#[tokio::test]
async fn each_step_of_a_connection_is_reported_with_the_certificate_to_pin() {
    let own = self_signed(&["localhost"]);
    let der = own.cert.der().to_vec();
    let port = tls_server(der.clone(), own.signing_key.serialize_der(), &[]).await;
    let (pin, fingerprint) = pinned(&der);
    let (url, found) = (format!("https://127.0.0.1:{port}/"), Some(fingerprint.to_hex()));
    let told = |text: &str| Ok(text.to_owned());
    let before = || {
        vec![
            ("name look-up", told("the URL has an address, so there is nothing to look up"), None),
            ("address", told("may be reached"), None),
            ("connect", Ok(format!("127.0.0.1:{port} answers")), None),
        ]
    };
    for (tls, outcome) in [
        (pin, told("the certificate is trusted")),
        (Tls::insecure().unwrap(), told("the certificate is not verified (insecure)")),
        (Tls::system().unwrap(), Err("tls_untrusted".to_owned())),
    ] {
        let expected: Vec<_> = before().into_iter().chain([("TLS", outcome, found.clone())]).collect();
        assert_eq!(probed(&url, tls, Reach::Everywhere).await, expected);
    }
}

#[tokio::test]
async fn the_last_step_is_the_first_that_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("http://127.0.0.1:{port}/");
    for (url, reach, expected) in [
        (url.as_str(), Reach::Everywhere, ("connect", Err("connect_refused".to_owned()), None)),
        (url.as_str(), Reach::Public { except: Vec::new() }, ("address", Err("denied".to_owned()), None)),
    ] {
        let steps = probed(url, Tls::system().unwrap(), reach).await;
        assert_eq!(steps.last(), Some(&expected), "{steps:?}");
    }
}
