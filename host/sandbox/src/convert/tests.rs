use super::*;

pub(super) fn found(name: &str) -> poller::Dependency {
    poller::Dependency {
        name: name.to_owned(),
        title: None,
        kind: None,
        status: types::Status::Ok,
        flags: poller::DependencyFlags::empty(),
        code: None,
        latency_ms: None,
        description: None,
        impact: None,
        checked_at: None,
        valid_for_ms: None,
        error: None,
        error_message: None,
        contact: None,
        check_details: None,
        link: None,
        runs_on: vec![],
        extra: Vec::new(),
    }
}

pub(super) fn empty() -> poller::Report {
    poller::Report {
        dependencies: vec![],
        kept: vec![],
        gone: vec![],
        error_unless_known: None,
        samples: vec![],
        warnings: vec![],
        next_poll_ms: None,
        extra: vec![],
    }
}

fn convert(dependencies: Vec<poller::Dependency>) -> Report {
    let report = poller::Report { dependencies, ..empty() };
    outcome(Ok(report), &Limits::default()).unwrap()
}

#[test]
fn invalid_fields_are_omitted_with_a_warning() {
    let odd = poller::Dependency {
        latency_ms: Some(f64::NAN),
        contact: Some("[]".to_owned()),
        check_details: Some("{".to_owned()),
        error: Some("nope".to_owned()),
        checked_at: Some(i64::MAX),
        error_message: Some(format!("a\u{1b}[31m\n{}", "x".repeat(5000))),
        flags: poller::DependencyFlags::SKIPPED,
        link: Some("javascript:alert(1)".to_owned()),
        status: types::Status::Critical,
        ..found("a")
    };
    let report = convert(vec![odd, found(""), found(&"n".repeat(257)), found("a\nb")]);
    let [a, second, third, fourth] = &report.dependencies[..] else { panic!("{report:?}") };
    assert_eq!((second.name.as_str(), third.name.len(), fourth.name.as_str()), ("item 2", 256, "a b"));
    assert_eq!((a.latency_ms, &a.contact, &a.check_details, &a.error, a.checked_at), (None, &None, &None, &None, None));
    assert_eq!(a.status, Status::Ok, "a skipped dependency is ok");
    let message = a.error_message.as_deref().unwrap();
    assert!(message.starts_with("a[31m x") && message.len() <= 1024 && message.ends_with('…'), "{message}");
    assert_eq!((a.link.as_deref(), report.warnings.len()), (None, 9), "{:?}", report.warnings);
    for (ms, kept) in [(0, true), (-1, true), (*TIMES.end(), true), (*TIMES.start() - 1, false), (i64::MIN, false)] {
        let report = convert(vec![poller::Dependency { checked_at: Some(ms), ..found("a") }]);
        assert_eq!(report.dependencies[0].checked_at.is_some(), kept, "{ms}");
    }
    for (ms, kept) in [(0.0, true), (-0.5, false), (f64::INFINITY, false), (1e300, true)] {
        let report = convert(vec![poller::Dependency { latency_ms: Some(ms), ..found("a") }]);
        assert_eq!(report.dependencies[0].latency_ms.is_some(), kept, "{ms}");
    }
}

#[test]
fn equal_contacts_are_shared_and_each_invalid_one_is_omitted() {
    let contacts = [Some("[]"), Some("[]"), Some(r#"{"a":1}"#), Some(r#"{"a":1}"#), None, Some("[]")];
    let dependency = |(n, contact): (usize, &Option<&str>)| poller::Dependency {
        contact: contact.map(str::to_owned),
        ..found(&n.to_string())
    };
    let report = convert(contacts.iter().enumerate().map(dependency).collect());
    let kept: Vec<Option<&str>> =
        report.dependencies.iter().map(|found| found.contact.as_ref().map(Json::as_str)).collect();
    assert_eq!(kept, [None, None, contacts[2], contacts[3], None, None]);
    let text = |n: usize| report.dependencies[n].contact.as_ref().map(|contact| contact.as_str().as_ptr());
    assert_eq!(text(2), text(3), "one text in memory");
    assert_eq!(report.warnings.len(), 3, "{:?}", report.warnings);
}

#[test]
fn links_are_addresses_of_web_pages() {
    let long = format!("https://a/{}", "x".repeat(LINK - 10));
    for (link, kept) in [
        ("https://pve.example:8006/#v1:0:=qemu%2F100", true),
        ("http://[::1]?a=b", true),
        (long.as_str(), true),
        (&format!("{long}x"), false),
        ("ftp://a/", false),
        ("https:///path", false),
        ("https://:80/", false),
        ("https://user@host/", false),
        ("https://host/\u{202e}", false),
        ("https://host/a b", false),
        ("//host/", false),
        ("", false),
    ] {
        let report = convert(vec![poller::Dependency { link: Some(link.to_owned()), ..found("a") }]);
        assert_eq!(report.dependencies[0].link.as_deref(), Some(link).filter(|_| kept));
        assert_eq!(report.warnings.is_empty(), kept, "{link}: {:?}", report.warnings);
    }
}

#[test]
fn runs_on_has_names_of_the_report_without_cycles() {
    let on = |name: &str, others: &[&str]| {
        let runs_on = others.iter().map(|&other| other.to_owned()).collect();
        poller::Dependency { runs_on, ..found(name) }
    };
    let report = convert(vec![
        on("a", &["b"]),
        on("b", &["c", "f"]),
        on("c", &["b"]),
        on("d", &["gone", "f", "f"]),
        on("e", &["f"]),
        found("f"),
        on("g", &["g"]),
    ]);
    let found: Vec<_> = report.dependencies.iter().map(|found| found.runs_on.join(" ")).collect();
    assert_eq!(found, ["b", "f", "", "f", "f", "", ""]);
    assert_eq!(report.warnings.len(), 4, "{:?}", report.warnings);
    let many: Vec<String> = (0..70).map(|n| n.to_string()).collect();
    let mut dependencies: Vec<_> = many.iter().map(|name| on(name, &[])).collect();
    dependencies.push(on("all", &many.iter().map(String::as_str).collect::<Vec<_>>()));
    let report = convert(dependencies);
    assert_eq!((report.dependencies[70].runs_on.len(), report.warnings.len()), (64, 1), "{:?}", report.warnings);
    // A name that is no name of the report can be long, and quoting makes it longer.
    for name in ["x", "\"", "\u{378}"] {
        let report = convert(vec![on(&name.repeat(60), &[&name.repeat(100_000)])]);
        assert!(report.warnings.len() == 1 && report.warnings[0].len() <= 1024, "{:?}", report.warnings);
    }
}

#[test]
fn invalid_samples_are_omitted_with_a_warning() {
    let sample = |name: &str, kind, value, label: &str| poller::Sample {
        name: name.to_owned(),
        kind,
        labels: vec![types::Label { name: label.to_owned(), value: "v\n".to_owned() }],
        value,
        help: Some("a\nb".to_owned()),
        unit: Some(String::new()),
        dependency: Some("a".to_owned()),
        extra: vec![],
    };
    use poller::SampleKind::{Counter, Gauge};
    let samples = vec![
        sample("good_total", Counter, 1.0, "l"),
        sample("good_total", Gauge, 1.0, "l"),
        sample("polliwog_poll_total", Gauge, 1.0, "l"),
        sample("1bad", Gauge, 1.0, "l"),
        sample("nan", Gauge, f64::NAN, "l"),
        sample("label", Gauge, 1.0, "instance"),
        sample("label", Gauge, 1.0, "__name__"),
        sample(&"n".repeat(257), Gauge, 1.0, "l"),
    ];
    let report = poller::Report { samples, warnings: vec!["w".to_owned(), "w".to_owned()], ..empty() };
    let report = outcome(Ok(report), &Limits::default()).unwrap();
    let [good] = &report.samples[..] else { panic!("{report:?}") };
    let texts = [&good.help, &good.unit, &good.dependency].map(Option::as_deref);
    assert_eq!(texts, [Some("a b"), None, Some("a")]);
    assert_eq!(report.warnings.len(), 7, "{:?}", report.warnings);
}

#[test]
fn reports_over_a_limit_are_refused_with_a_category() {
    let limits = Limits { dependencies: 1, samples: 0, ..Limits::default() };
    let report = |dependencies, samples| poller::Report { dependencies, samples, ..empty() };
    let failure = outcome(Ok(report(vec![found("a"), found("b")], vec![])), &limits).unwrap_err();
    assert_eq!((failure.category, failure.code.as_str()), (FailureCategory::Permanent, "too_many_dependencies"));
    let sample = poller::Sample {
        name: "a".to_owned(),
        kind: poller::SampleKind::Gauge,
        labels: vec![],
        value: 0.0,
        help: None,
        unit: None,
        dependency: None,
        extra: vec![],
    };
    let failure = outcome(Ok(report(vec![], vec![sample])), &limits).unwrap_err();
    assert_eq!((failure.category, failure.code.as_str()), (FailureCategory::Plugin, "too_many_samples"));
    let error = types::Error::Transient(types::Failure {
        code: "Bad Code".to_owned(),
        message: "m".to_owned(),
        retry_after_ms: Some(u32::MAX),
        extra: vec![],
    });
    let failure = outcome(Err(error), &limits).unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.retry_after),
        ("unspecified", Some(Duration::from_millis(u32::MAX.into())))
    );
}
