use super::*;
use polliwog_sdk::testing::{Recording, TIME, check_settings, poll, target};

/// Polls with one GET that is answered with this response (the JSON of a recording).
fn answer(settings: &str, response: &str) -> Report {
    let recording = Recording::parse(&format!(r#"[{{"request":{{"method":"GET","url":"/"}},{response}}}]"#));
    let target = Endpoint { url: "https://a.example/".to_owned(), ..target(settings) };
    poll::<Http>(recording, target).unwrap_or_else(|error| panic!("{error:?}"))
}

fn statuses(report: &Report) -> Vec<(&str, Status)> {
    report.dependencies.iter().map(|dependency| (dependency.name.as_str(), dependency.status)).collect()
}

#[test]
fn unexpected_statuses_are_critical() {
    for (settings, status, expected) in [
        ("{}", 204, Status::Ok),
        ("{}", 302, Status::Critical),
        ("{}", 503, Status::Critical),
        (r#"{"expected_status":[401,"3xx"]}"#, 401, Status::Ok),
        (r#"{"expected_status":[401,"3xx"]}"#, 308, Status::Ok),
        (r#"{"expected_status":[401,"3xx"]}"#, 200, Status::Critical),
    ] {
        let report = answer(settings, &format!(r#""response":{{"status":{status}}}"#));
        assert_eq!(statuses(&report), [("response", expected)], "{settings} {status}");
        assert_eq!(report.dependencies[0].code, Some(status));
    }
}

#[test]
fn body_texts_and_latency_limits_determine_the_status() {
    let settings =
        r#"{"body_contains":["up"],"body_excludes":["fatal"],"latency_warning_ms":100,"latency_critical_ms":900}"#;
    for (body, ms, text, latency) in [
        ("all up", 50.0, Status::Ok, Status::Ok),
        ("down", 500.0, Status::Critical, Status::Warning),
        ("up, fatal", 1000.0, Status::Critical, Status::Critical),
    ] {
        let report = answer(settings, &format!(r#""response":{{"status":200,"body":"{body}","totalMs":{ms}}}"#));
        assert_eq!(statuses(&report), [("response", Status::Ok), ("body", text), ("latency", latency)]);
    }
}

#[test]
fn the_certificate_status_depends_on_the_days_until_expiry() {
    for (days, expected) in [(100, Status::Ok), (20, Status::Warning), (3, Status::Critical), (-1, Status::Critical)] {
        let not_after = TIME + days * DAY_MS;
        let report = answer(
            "{}",
            &format!(
                r#""response":{{"status":200}},"tls":{{"serverName":"a","chain":[{{"fingerprint":"00","subject":"CN=a",
                   "issuer":"CN=b","notBefore":0,"notAfter":{not_after}}}]}}"#
            ),
        );
        assert_eq!(statuses(&report), [("response", Status::Ok), ("certificate", expected)], "{days} days");
    }
}

/// A certificate of a recording, which expires after so many days.
fn expiring(subject: &str, issuer: &str, days: i64) -> String {
    let not_after = TIME + days * DAY_MS;
    format!(r#"{{"fingerprint":"00","subject":"{subject}","issuer":"{issuer}","notBefore":0,"notAfter":{not_after}}}"#)
}

#[test]
fn of_all_certificates_that_are_sent_the_first_expiry_counts() {
    let leaf = expiring("CN=a", "CN=i", 90);
    for (others, expected, message) in [
        (vec![], Status::Ok, None),
        (vec![expiring("CN=i", "CN=root", 400)], Status::Ok, None),
        (
            vec![expiring("CN=i", "CN=root", 5)],
            Status::Critical,
            Some("the intermediate certificate \"CN=i\" expires in 5 days"),
        ),
        (vec![expiring("CN=i", "CN=root", 20)], Status::Warning, Some("expires in 20 days: renew it soon")),
        (vec![expiring("CN=i", "CN=root", -1)], Status::Warning, Some("has expired")),
        (vec![expiring("CN=i", "CN=root", 400), expiring("CN=root", "CN=root", -9)], Status::Ok, None),
    ] {
        let chain = [vec![leaf.clone()], others].concat().join(",");
        let response = format!(r#""response":{{"status":200}},"tls":{{"serverName":"a","chain":[{chain}]}}"#);
        let report = answer("{}", &response);
        assert_eq!(statuses(&report), [("response", Status::Ok), ("certificate", expected)], "{chain}");
        let found = report.dependencies[1].error_message.as_deref();
        assert!(message.is_none_or(|message| found.is_some_and(|found| found.contains(message))), "{found:?}");
    }
}

#[test]
fn what_a_wrong_status_hides_is_unknown_and_runs_on_the_response() {
    for (settings, status) in [
        (r#"{"body_contains":["pong"]}"#, 503),
        (r#"{"body_excludes":["fatal"]}"#, 404),
        (r#"{"body_contains":["pong"],"expected_status":[503]}"#, 200),
    ] {
        let report = answer(settings, &format!(r#""response":{{"status":{status},"body":"Service Unavailable"}}"#));
        assert_eq!(statuses(&report), [("response", Status::Critical), ("body", Status::Unknown)], "{settings}");
        assert_eq!(report.dependencies[1].runs_on, ["response"]);
    }
    let expected =
        answer(r#"{"body_contains":["pong"],"expected_status":[503]}"#, r#""response":{"status":503,"body":"pong"}"#);
    assert_eq!(statuses(&expected), [("response", Status::Ok), ("body", Status::Ok)]);
}

#[test]
fn a_text_is_not_missed_because_of_its_character_set() {
    let (z, fehler) = (r#"["Zürich"]"#, r#"["Fehler"]"#);
    for (kind, body, unwanted, expected) in [
        // "Zürich" in Latin-1, in UTF-8, and in Windows-1251 a text that is not it.
        ("text/html; charset=utf-8", "WvxyaWNo", z, Status::Critical),
        ("", "WvxyaWNo", z, Status::Critical),
        ("", "WsO8cmljaA==", z, Status::Critical),
        ("", "z/Do4uXy", z, Status::Unknown),
        ("", "z/Do4uXy", fehler, Status::Ok),
        ("text/plain", "RmVobGVyIPw=", fehler, Status::Critical),
        // UTF-7, a replacement character of the host, UTF-32, gzip.
        ("text/html; charset=\"UTF-7\"", "WitBUHctcmljaA==", z, Status::Unknown),
        ("text/html; charset=iso-2022-kr", "77+9", fehler, Status::Unknown),
        ("text/html; charset=utf-32le", "WgAAAPwAAAA=", z, Status::Unknown),
        ("", "H4sIAAAAAAAAAw==", fehler, Status::Unknown),
        ("text/html; charset=cp1252", "b2s=", fehler, Status::Ok),
        ("text/html; charset=cp437", "b2s=", fehler, Status::Unknown),
        ("", "b2sKCQ0=", fehler, Status::Ok),
    ] {
        let headers = format!(r#"[["content-type",{kind:?}]]"#);
        let response = format!(r#""response":{{"status":200,"headers":{headers},"bodyBase64":"{body}"}}"#);
        let report = answer(&format!(r#"{{"body_excludes":{unwanted}}}"#), &response);
        assert_eq!(report.dependencies[1].status, expected, "{kind} {body} {unwanted}");
    }
}

#[test]
fn a_character_set_that_was_guessed_can_hide_a_text() {
    // The host takes a text that is not UTF-8 as windows-1252, if nothing declares its character set.
    for (kind, body, unwanted, expected) in [
        ("text/html", "\u{d3}\u{c2}\u{cf}\u{ca}", "сбой", Status::Unknown),
        ("text/plain", "\u{201a}\u{201a}", "障害", Status::Unknown),
        ("text/html", "Z\u{fc}rich", "błąd", Status::Unknown),
        ("text/html", "Z\u{fc}rich", "Fehler", Status::Ok),
        ("text/html", "Z\u{fc}rich", "Störung", Status::Ok),
        ("text/html", "Z\u{fc}rich", "Zürich", Status::Critical),
        ("text/html", "all is well", "сбой", Status::Ok),
        ("text/html", "все хорошо", "сбой", Status::Ok),
        ("text/html; charset=utf-8", "Z\u{fc}rich", "сбой", Status::Ok),
        ("text/html", "<meta charset=latin1>Z\u{fc}rich", "сбой", Status::Ok),
        ("application/json", "Z\u{fc}rich", "сбой", Status::Ok),
    ] {
        let response = format!(r#""response":{{"status":200,"headers":[["content-type","{kind}"]],"body":"{body}"}}"#);
        let report = answer(&format!(r#"{{"body_excludes":["{unwanted}"]}}"#), &response);
        assert_eq!(report.dependencies[1].status, expected, "{kind} {body} {unwanted}");
    }
}

#[test]
fn servers_that_redirect_are_checked_too() {
    let hop = |url: &str, days: i64, ms: i64, answer: &str| {
        let certificate = expiring("CN=a", "CN=i", days);
        format!(
            r#"{{"request":{{"method":"GET","url":"{url}"}},"response":{{{answer},"totalMs":{ms}}},
               "tls":{{"serverName":"a","chain":[{certificate}]}}}}"#
        )
    };
    let moved = r#""status":302,"headers":[["location","https://b.example/"]]"#;
    for (first, last, expected) in [
        (5, 90, Some("expires in 5 days: renew it (https://a.example)")),
        (90, 5, Some("the certificate expires in 5 days: renew it")),
        (5, 20, Some("expires in 5 days: renew it (https://a.example)")),
        (90, 90, None),
    ] {
        let exchanges =
            [hop("https://a.example/", first, 900, moved), hop("https://b.example/", last, 50, r#""status":200"#)];
        let recording = Recording::parse(&format!("[{}]", exchanges.join(",")));
        let settings = r#"{"redirects":3,"latency_warning_ms":500}"#;
        let target = Endpoint { url: "https://a.example/".to_owned(), ..target(settings) };
        let report = poll::<Http>(recording, target).unwrap();
        let found = statuses(&report);
        assert_eq!(found[..2], [("response", Status::Ok), ("latency", Status::Warning)], "the sum counts");
        assert_eq!(report.dependencies[0].latency_ms, Some(950.0));
        let certificate = &report.dependencies[2];
        match expected {
            Some(expected) => {
                assert!(
                    certificate.error_message.as_ref().is_some_and(|why| why.ends_with(expected)),
                    "{certificate:?}"
                );
            }
            None => assert_eq!(certificate.status, Status::Ok),
        }
    }
}

#[test]
fn a_missing_answer_is_critical_and_a_wrong_configuration_fails_the_poll() {
    let error = |class: &str, code: &str| {
        format!(r#""error":{{"class":"{class}","code":"{code}","message":"m","retryable":true}}"#)
    };
    for (class, code) in [
        ("connection_refused", "connect_refused"),
        ("timeout", "timeout"),
        ("name_lookup", "dns_not_found"),
        ("certificate", "tls_fingerprint_mismatch"),
        ("body_too_large", "body_too_large"),
    ] {
        let report = answer(r#"{"body_contains":["x"]}"#, &error(class, code));
        assert_eq!(statuses(&report), [("response", Status::Critical), ("body", Status::Unknown)]);
        assert!(report.dependencies[0].error.as_ref().is_some_and(|error| error.contains(code)));
    }
    for code in ["denied", "secret_unknown"] {
        let error = error("denied", code);
        let recording = Recording::parse(&format!(r#"[{{"request":{{"method":"GET","url":"/"}},{error}}}]"#));
        assert_eq!(poll::<Http>(recording, target("{}")).expect_err(code).failure().code, code);
    }
}

#[test]
fn without_an_answer_the_known_certificate_is_kept() {
    let recording = Recording::parse(
        r#"[{"request":{"method":"GET","url":"https://a/"},"error":{"code":"timeout","message":"m","retryable":true}}]"#,
    );
    let target = Endpoint { url: "https://a/".to_owned(), ..target("{}") };
    assert_eq!(poll::<Http>(recording, target).expect("a report").kept, ["certificate"]);
}

#[test]
fn a_refused_certificate_is_shown_with_the_reason() {
    for (problem, days, expected) in [
        ("expired", -3, "the certificate has expired"),
        ("unknown_issuer", 100, "the certificate is not accepted (unknown_issuer)"),
        ("other", 100, "the certificate is not accepted: see the error"),
        ("name_mismatch", 3, "the certificate expires in 3 days"),
    ] {
        let not_after = TIME + days * DAY_MS;
        let report = answer(
            "{}",
            &format!(
                r#""error":{{"class":"certificate","code":"tls_expired","message":"m","retryable":false}},
                   "tls":{{"problem":"{problem}","chain":[{{"notAfter":{not_after}}}]}}"#
            ),
        );
        assert_eq!(statuses(&report), [("response", Status::Critical), ("certificate", Status::Critical)], "{problem}");
        let message = report.dependencies[1].error_message.clone().unwrap_or_default();
        assert!(message.starts_with(expected), "{message}");
    }
}

/// Returns the problems of settings.
fn told(settings: &str) -> String {
    check_settings::<Http>(settings).iter().map(SettingsProblem::sentence).collect::<Vec<_>>().join("; ")
}

#[test]
fn bad_settings_are_reported() {
    for (settings, word) in [
        (r#"{"expected_status":[]}"#, "expected_status"),
        (r#"{"expected_status":["9xx"]}"#, "9xx"),
        (r#"{"method":"HEAD","body_contains":["a"]}"#, "HEAD"),
        (r#"{"latency_warning_ms":2,"latency_critical_ms":1}"#, "latency_warning_ms"),
        (r#"{"certificate_warning_days":1}"#, "certificate_warning_days"),
        (r#"{"body_contains":["a",""]}"#, "body_contains"),
        (r#"{"body_excludes":[""]}"#, "every body contains it"),
        (r#"{"colour":1}"#, "colour"),
    ] {
        let problems = told(settings);
        assert!(problems.contains(word), "{settings}: {problems}");
    }
}

/// Polls with several recorded exchanges, each written as `METHOD URL STATUS LOCATION`.
fn answers(settings: &str, exchanges: &[&str]) -> Report {
    let exchange = |line: &&str| {
        let parts: Vec<&str> = line.split(' ').collect();
        let location = parts.get(3).map_or_else(String::new, |to| format!(r#","headers":[["Location","{to}"]]"#));
        let status = parts[2];
        format!(
            r#"{{"request":{{"method":"{}","url":"{}"}},"response":{{"status":{status}{location}}}}}"#,
            parts[0], parts[1]
        )
    };
    let exchanges: Vec<String> = exchanges.iter().map(exchange).collect();
    let recording = Recording::parse(&format!("[{}]", exchanges.join(",")));
    poll::<Http>(recording, target(settings)).unwrap_or_else(|error| panic!("{error:?}"))
}

#[test]
fn redirects_are_followed_up_to_the_configured_number() {
    let url = target("{}").url;
    let base = url.trim_end_matches('/');
    let hop = |method: &str, path: &str, rest: &str| format!("{method} {base}{path} {rest}");
    let found = |settings: &str, exchanges: &[String]| {
        let exchanges: Vec<&str> = exchanges.iter().map(String::as_str).collect();
        answers(settings, &exchanges).dependencies[0].code
    };
    let first = hop("GET", "/", "302 /login");
    let none = r#"{"redirects":0}"#;
    assert_eq!(found(none, std::slice::from_ref(&first)), Some(302), "redirects are not followed");
    let expected = r#"{"expected_status":[302]}"#;
    assert_eq!(found(expected, std::slice::from_ref(&first)), Some(302), "an expected redirect is not followed");
    let second = hop("GET", "/login", "200");
    for settings in ["{}", r#"{"redirects":1}"#, r#"{"redirects":1,"expected_status":["2xx",302]}"#] {
        assert_eq!(found(settings, &[first.clone(), second.clone()]), Some(200), "{settings}");
    }
    let longer = [first.clone(), hop("GET", "/login", "302 /start")];
    assert_eq!(found(r#"{"redirects":1}"#, &longer), Some(302), "no more than the configured number");
    let post = [hop("POST", "/", "303 /login"), second.clone()];
    assert_eq!(found(r#"{"redirects":3,"method":"POST","body":"x"}"#, &post), Some(200));
    let again = [hop("POST", "/", "308 /login"), hop("POST", "/login", "204")];
    assert_eq!(found(r#"{"redirects":3,"method":"POST","body":"x"}"#, &again), Some(204));
}

#[test]
fn a_refused_redirect_names_what_would_help() {
    for (location, remedy) in [
        ("https://b.example:444/login?x", "add https://b.example:444 to also, or expect the redirect's status"),
        ("http://127.0.0.1:8080/secret", "correct the server's redirect, or expect its status"),
        ("ftp://b.example/", "correct the server's redirect, or expect its status"),
    ] {
        let exchanges = value!([
            { "request": { "method": "GET", "url": "/" },
              "response": { "status": 302, "headers": [["location", location]] } },
            { "request": { "method": "GET", "url": location },
              "error": { "class": "denied", "code": "denied", "message": "why", "retryable": false } },
        ]);
        let recording = Recording::parse(&exchanges.to_string());
        let report = poll::<Http>(recording, target(r#"{"redirects":1}"#)).unwrap();
        let message = report.dependencies[0].error_message.clone().unwrap();
        assert_eq!(message, format!("it redirects to {location}, which is refused (why): {remedy}"));
    }
}

#[test]
fn contradictory_settings_are_reported() {
    for (settings, expected) in [
        (r#"{"body":"x"}"#, "POST"),
        (r#"{"redirects":99}"#, "20 or fewer"),
        (r#"{"basic_auth":"login","headers":{"Authorization":"x"}}"#, "exclude"),
    ] {
        let problems = told(settings);
        assert!(problems.contains(expected), "{settings}: {problems}");
    }
}

#[test]
fn an_answer_that_has_not_changed_is_expected_after_a_condition() {
    let unchanged = r#""response":{"status":304}"#;
    let report = answer(r#"{"headers":{"If-None-Match":"\"x\""}}"#, unchanged);
    assert_eq!(statuses(&report), [("response", Status::Ok)]);
    assert_eq!(statuses(&answer("{}", unchanged)), [("response", Status::Critical)]);
    // Where the body is checked, the condition is not sent: the version that an operator names may be a broken one.
    let report = answer(r#"{"headers":{"If-None-Match":"\"x\""},"body_contains":["up"]}"#, unchanged);
    assert_eq!(statuses(&report), [("response", Status::Critical), ("body", Status::Unknown)]);
}

#[test]
fn redirects_without_an_end_name_their_way() {
    let url = target("{}").url;
    let base = url.trim_end_matches('/');
    let hop = |path: &str, to: &str| format!("GET {base}{path} 302 {to}");
    for (way, expected) in [
        (
            vec![hop("/", "/a"), hop("/a", "/b"), hop("/b", "/a")],
            format!("in a circle: {url} → {base}/a → {base}/b → {base}/a"),
        ),
        (
            vec![hop("/", "/a"), hop("/a", "/b"), hop("/b", "/c"), hop("/c", "/d")],
            format!("after 3 redirects: {url} → {base}/a → {base}/b → {base}/c → {base}/d"),
        ),
    ] {
        let way: Vec<&str> = way.iter().map(String::as_str).collect();
        let report = answers("{}", &way);
        let message = report.dependencies[0].error_message.clone().unwrap_or_default();
        assert!(message.starts_with("answered 302") && message.contains(&expected), "{message}");
    }
}

#[test]
fn a_body_that_cannot_be_read_does_not_hide_the_status() {
    let error = |status: &str| {
        format!(r#""error":{{{status}"class":"closed","code":"closed","message":"it broke off","retryable":true}}"#)
    };
    for (settings, status, expected) in [
        (r#"{"body_contains":["x"]}"#, 200, [("response", Status::Ok), ("body", Status::Critical)]),
        (r#"{"body_contains":["x"]}"#, 503, [("response", Status::Critical), ("body", Status::Unknown)]),
        (
            r#"{"body_contains":["x"],"expected_status":[503]}"#,
            503,
            [("response", Status::Ok), ("body", Status::Critical)],
        ),
    ] {
        let report = answer(settings, &error(&format!(r#""status":{status},"#)));
        assert_eq!(statuses(&report), expected, "{settings} {status}");
        assert_eq!(report.dependencies[0].code, Some(status));
        let failed = report.dependencies.iter().find(|dependency| dependency.status == Status::Critical);
        let message = failed.and_then(|failed| failed.error_message.clone()).unwrap_or_default();
        assert!(message.contains("it broke off") || message.starts_with("answered 503"), "{message}");
    }
    let report = answer(r#"{"body_contains":["x"],"latency_warning_ms":9}"#, &error(r#""status":200,"#));
    assert_eq!(report.dependencies[2].runs_on, ["body"], "the latency is not known");
    let silent = answer(r#"{"body_contains":["x"]}"#, &error(""));
    assert_eq!(statuses(&silent), [("response", Status::Critical), ("body", Status::Unknown)]);
}

#[test]
fn secrets_of_the_body_do_not_follow_a_redirect_to_another_host() {
    let exchanges = value!([{ "request": { "method": "POST", "url": "/" },
        "response": { "status": 307, "headers": [["location", "https://b.example/x"]] } }]);
    let settings = value!({ "method": "POST", "body": format!("key={}", http::secret("key")) }).to_string();
    let recording = Recording::parse(&exchanges.to_string());
    let report = poll::<Http>(recording, target(&settings)).unwrap();
    let message = report.dependencies[0].error_message.clone().unwrap_or_default();
    assert!(message.contains("not followed, because the body has secrets"), "{message}");
}
