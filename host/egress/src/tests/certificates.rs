//! TLS: the policies for certificates, and HTTP/2.

use super::*;

pub(super) fn acceptor(chain: Vec<u8>, key: Vec<u8>, protocols: &[&[u8]]) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain.into()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

pub(super) async fn tls_server(chain: Vec<u8>, key: Vec<u8>, protocols: &[&[u8]]) -> u16 {
    let acceptor = acceptor(chain, key, protocols);
    server(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            if http2 { serve_http2(stream).await } else { serve_http1(stream).await }
        }
    })
    .await
}

async fn serve_http1<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    while head(&mut stream).await.is_some() {
        let _ = stream.write_all(ok("one").as_bytes()).await;
    }
}

async fn serve_http2<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) {
    use hyper::service::service_fn;
    let answer = service_fn(|_| async {
        Ok::<_, std::convert::Infallible>(hyper::Response::new(http_body_util::Full::new(bytes::Bytes::from("two"))))
    });
    let io = hyper_util::rt::TokioIo::new(stream);
    let _ = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
        .serve_connection(io, answer)
        .await;
}

pub(super) fn self_signed(names: &[&str]) -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
}

pub(super) fn pinned(certificate: &[u8]) -> (Tls, Fingerprint) {
    let fingerprint = Fingerprint::parse(&Certificate::of(certificate).fingerprint).unwrap();
    (Tls::pinned(BTreeSet::from([fingerprint])).unwrap(), fingerprint)
}

async fn fetch_over(port: u16, tls: Tls) -> Result<Response, Error> {
    fetched_over(port, tls).await.0
}

/// Returns the answer and its TLS session.
async fn fetched_over(port: u16, tls: Tls) -> (Result<Response, Error>, Option<TlsSession>) {
    let url = format!("https://localhost:{port}/");
    let poll = poll_with(Egress::new(Config::default()), grant(&url, tls, Secrets::default()), LIMITS);
    let Exchanged { number, result, .. } = poll.session.exchange(Request::get("")).await;
    (result, poll.session.tls_of(number.unwrap()).await)
}

#[tokio::test]
async fn certificates_are_verified_by_the_configured_policy() {
    let right = self_signed(&["localhost"]);
    let der = right.cert.der().to_vec();
    let port = tls_server(der.clone(), right.signing_key.serialize_der(), &[]).await;
    let (pin, fingerprint) = pinned(&der);
    let (result, session) = fetched_over(port, pin).await;
    result.unwrap();
    let TlsSession { protocol, cipher, alpn, server_name, chain, problem } = session.unwrap();
    assert_eq!((protocol.as_deref(), alpn.as_deref(), problem), (Some("TLSv1.3"), None, None));
    assert!(cipher.is_some_and(|name| name.starts_with("TLS_")) && server_name == "localhost");
    let [certificate] = chain.as_slice() else { panic!("{chain:?}") };
    assert_eq!(certificate.fingerprint, fingerprint.to_hex());
    assert_eq!((certificate.key.as_str(), certificate.is_authority), ("ecdsa-p256", false));
    assert_eq!(
        (&*certificate.signature_algorithm, &*certificate.names),
        ("ecdsa-with-SHA256", &["localhost".to_owned()][..])
    );
    assert!(certificate.not_after > certificate.not_before && certificate.subject.contains("rcgen"), "{certificate:?}");
    assert!(fetch_over(port, Tls::insecure().unwrap()).await.is_ok());

    let file = std::env::temp_dir().join(format!("polliwog-egress-ca-{}.pem", std::process::id()));
    std::fs::write(&file, right.cert.pem()).unwrap();
    assert!(
        fetch_over(port, Tls::ca_file(&file).unwrap()).await.is_ok(),
        "the self-signed certificate is in the CA file"
    );
    std::fs::write(&file, "nothing").unwrap();
    assert!(Tls::ca_file(&file).unwrap_err().to_string().contains("no certificate"));
    std::fs::remove_file(&file).unwrap();
    assert!(Tls::ca_file(&file).is_err());

    let wrong = Tls::pinned(BTreeSet::from([Fingerprint::parse(&"00".repeat(32)).unwrap()])).unwrap();
    let (result, session) = fetched_over(port, wrong).await;
    let error = result.unwrap_err();
    assert_eq!(error.code(), "tls_fingerprint_mismatch");
    let session = session.unwrap();
    assert_eq!((session.problem.as_deref(), session.protocol), (Some("fingerprint_mismatch"), None));
    assert_eq!(session.chain.first().map(|leaf| &*leaf.fingerprint), Some(&*fingerprint.to_hex()));
    assert!(error.to_string().contains(&fingerprint.to_string()) && error.to_string().contains("00:00"), "{error}");
    let error = fetch_over(port, Tls::system().unwrap()).await.unwrap_err();
    assert_eq!(error.code(), "tls_untrusted");
    assert!(error.to_string().contains(&fingerprint.to_string()), "{error}");
}

/// Returns TLS settings that trust the certificates of a PEM file.
fn in_ca_file(pem: &str, name: &str) -> Tls {
    let file = std::env::temp_dir().join(format!("polliwog-egress-{name}-{}.pem", std::process::id()));
    std::fs::write(&file, pem).unwrap();
    let tls = Tls::ca_file(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    tls
}

/// `openssl req -x509` makes such certificates: the server's own certificate is that of an authority.
#[tokio::test]
async fn a_self_signed_authority_in_the_ca_file_is_trusted_for_its_name_and_dates() {
    let key = KeyPair::generate().unwrap();
    let authority = |name: &str, year| {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        params.self_signed(&key).unwrap()
    };
    for (number, (name, year, expected)) in [
        ("localhost", 2090, Ok(())),
        ("elsewhere.example", 2090, Err("tls_name_mismatch")),
        ("localhost", 2020, Err("tls_expired")),
    ]
    .into_iter()
    .enumerate()
    {
        let own = authority(name, year);
        let port = tls_server(own.der().to_vec(), key.serialize_der(), &[]).await;
        let answered = fetch_over(port, in_ca_file(&own.pem(), &format!("own-{number}"))).await;
        assert_eq!(
            answered.map(drop).map_err(|error| error.code().to_owned()),
            expected.map_err(str::to_owned),
            "{name} {year}"
        );
        // A different certificate with the same key is not trusted.
        let another = in_ca_file(&authority("other.example", 2091).pem(), &format!("another-{number}"));
        assert!(fetch_over(port, another).await.is_err(), "{name} {year}");
    }
}

#[tokio::test]
async fn names_and_dates_are_verified_with_a_ca_file() {
    let other = self_signed(&["elsewhere.example"]);
    let port = tls_server(other.cert.der().to_vec(), other.signing_key.serialize_der(), &[]).await;
    let error = fetch_over(port, in_ca_file(&other.cert.pem(), "name")).await.unwrap_err();
    assert_eq!(error.code(), "tls_name_mismatch");

    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let old = params.self_signed(&key).unwrap();
    let port = tls_server(old.der().to_vec(), key.serialize_der(), &[]).await;
    assert_eq!(fetch_over(port, in_ca_file(&old.pem(), "date")).await.unwrap_err().code(), "tls_expired");
    assert!(fetch_over(port, pinned(old.der()).0).await.is_ok(), "a pin replaces the check of the dates");
}

#[tokio::test]
async fn a_pin_accepts_certificates_without_names() {
    let key = KeyPair::generate().unwrap();
    let bare = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    let port = tls_server(bare.der().to_vec(), key.serialize_der(), &[]).await;
    assert!(fetch_over(port, pinned(bare.der()).0).await.is_ok());
}

#[tokio::test]
async fn http2_is_used_if_configured_and_offered() {
    let key = self_signed(&["localhost"]);
    let port = tls_server(key.cert.der().to_vec(), key.signing_key.serialize_der(), &[b"h2", b"http/1.1"]).await;
    let tls = Tls::insecure().unwrap();
    assert_eq!(fetch_over(port, tls.clone()).await.unwrap().body, b"one");
    assert_eq!(fetch_over(port, tls.with_http2()).await.unwrap().body, b"two");
}

#[tokio::test]
async fn a_port_without_tls_fails_with_tls_failed() {
    let port = server(|mut stream| async move {
        let _ = stream.read(&mut [0; 16]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let error = fetch_over(port, Tls::insecure().unwrap()).await.unwrap_err();
    assert_eq!(error.code(), "tls_failed", "{error}");
    let values = BTreeMap::from([("t".to_owned(), SecretString::from("hunter2hunter2"))]);
    assert!(Secrets::new(values).is_ok());
}

/// A server that accepts each connection with these settings.
async fn server_with(config: ServerConfig) -> u16 {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    server(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                serve_http1(stream).await;
            }
        }
    })
    .await
}

fn settings(
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap()
}

/// A server with a certificate that the TLS library does not parse, and this key.
async fn server_of(
    certificate: &'static [u8],
    key: &[u8],
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> u16 {
    let key = PrivateKeyDer::Pkcs8(key.to_vec().into());
    let key = rustls::crypto::ring::default_provider().key_provider.load_private_key(key).unwrap();
    let certified = rustls::sign::CertifiedKey::new(vec![certificate.into()], key);
    let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified));
    server_with(settings(versions).with_no_client_auth().with_cert_resolver(resolver)).await
}

const VERSIONS: [&[&rustls::SupportedProtocolVersion]; 2] = [&[&rustls::version::TLS12], &[&rustls::version::TLS13]];

#[tokio::test]
async fn a_pin_and_insecure_need_no_certificate_that_can_be_verified() {
    let other = self_signed(&["localhost"]);
    let unrelated = pinned(other.cert.der()).0;
    for certificate in [&include_bytes!("data/version-1.der")[..], include_bytes!("data/critical-extension.der")] {
        for versions in VERSIONS {
            let port = server_of(certificate, include_bytes!("data/p256.pkcs8"), versions).await;
            fetch_over(port, pinned(certificate).0).await.unwrap();
            fetch_over(port, Tls::insecure().unwrap()).await.unwrap();
            let error = fetch_over(port, in_ca_file(&other.cert.pem(), "unusable")).await.unwrap_err();
            assert_eq!(error.code(), "tls_certificate_unusable");
            let remedy = format!("set tls.fingerprint = \"{}\"", pinned(certificate).1);
            assert!(error.to_string().contains(&remedy), "{error}");
            assert_eq!(fetch_over(port, unrelated.clone()).await.unwrap_err().code(), "tls_fingerprint_mismatch");
            let forged = server_of(certificate, &other.signing_key.serialize_der(), versions).await;
            let error = fetch_over(forged, pinned(certificate).0).await.unwrap_err();
            assert_eq!(error.code(), "tls_failed", "a pin does not accept another key");
        }
    }
}

#[tokio::test]
async fn the_host_header_is_the_name_for_tls() {
    let own = self_signed(&["app.example"]);
    let acceptor = acceptor(own.cert.der().to_vec(), own.signing_key.serialize_der(), &[]);
    let port = server(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            while let Some(request) = head(&mut stream).await {
                let host = request.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
                let name = stream.get_ref().1.server_name().unwrap_or("none").to_owned();
                let _ = stream.write_all(ok(&format!("{name} {host}")).as_bytes()).await;
            }
        }
    })
    .await;
    let tls = in_ca_file(&own.cert.pem(), "host");
    let egress = Egress::new(Config::default());
    let fetched = async |host: Option<&str>| {
        let (base, origin) = Origin::parse(&format!("https://127.0.0.1:{port}/")).unwrap();
        let origins = vec![OriginGrant { origin, tls: tls.clone() }];
        let grant = Grant { host: host.map(str::to_owned), ..Grant::new(base, origins, Secrets::default()) };
        let poll = poll_with(egress.clone(), Arc::new(grant), LIMITS);
        let answer = poll.session.fetch(Request::get("")).await;
        answer.map(|answer| String::from_utf8(answer.body).unwrap()).map_err(|error| error.to_string())
    };
    assert_eq!(fetched(Some("App.example:8443")).await.as_deref(), Ok("app.example App.example:8443"));
    for (host, name) in [(None, "127.0.0.1"), (Some("b.example"), "b.example")] {
        let error = fetched(host).await.unwrap_err();
        assert!(error.contains(&format!("not for the name {name}")), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_ends_the_session_says_why() {
    let own = self_signed(&["localhost"]);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let wanted = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let wanted = wanted.build().unwrap();
    for versions in VERSIONS {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let config = settings(versions).with_client_cert_verifier(wanted.clone());
        let port = server_with(config.with_single_cert(vec![own.cert.der().clone()], key).unwrap()).await;
        let error = fetch_over(port, Tls::insecure().unwrap()).await.unwrap_err();
        assert!(error.to_string().contains("client certificate"), "{error}");
        assert_eq!(error.code(), "tls_refused");
    }
    // The alert of a server that has no version in common (RFC 8446, section 6).
    let old = server(|mut stream| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(&[21, 3, 1, 0, 2, 2, 70]).await;
    })
    .await;
    let error = fetch_over(old, Tls::insecure().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("no TLS 1.2 or 1.3"), "{error}");
}

#[tokio::test]
async fn a_missing_intermediate_certificate_is_named() {
    let ca = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params
    };
    let keys: [KeyPair; 3] = std::array::from_fn(|_| KeyPair::generate().unwrap());
    let root = ca("root").self_signed(&keys[0]).unwrap();
    let between = ca("between").signed_by(&keys[1], &rcgen::Issuer::new(ca("root"), &keys[0])).unwrap();
    let issuer = rcgen::Issuer::new(ca("between"), &keys[1]);
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&keys[2], &issuer).unwrap();
    let trusted = in_ca_file(&root.pem(), "between");
    let other = in_ca_file(&self_signed(&["localhost"]).cert.pem(), "between-other");
    for (sent, tls, expected) in [
        (vec![leaf.der(), between.der()], &trusted, None),
        (vec![leaf.der()], &trusted, Some("is signed by \"CN=between\"")),
        (vec![leaf.der(), between.der()], &other, Some("is signed by \"CN=root\"")),
        (vec![leaf.der(), between.der(), root.der()], &other, Some("is not signed by an authority that is trusted")),
    ] {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(keys[2].serialize_der()));
        let sent = sent.into_iter().cloned().collect();
        let config = settings(VERSIONS[1]).with_no_client_auth().with_single_cert(sent, key).unwrap();
        let result = fetch_over(server_with(config).await, tls.clone()).await;
        match (expected, result) {
            (None, Ok(_)) => {}
            (Some(expected), Err(error)) => {
                assert!(error.code() == "tls_untrusted" && error.to_string().contains(expected), "{error}");
            }
            (expected, result) => panic!("{expected:?} {result:?}"),
        }
    }
}
