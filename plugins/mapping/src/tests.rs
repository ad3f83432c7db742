mod shapes;

use super::*;
use polliwog_sdk::serde_json;
use polliwog_sdk::testing::{Recording, check_settings, describe, poll, target};

fn report(mapping: &str, body: &str) -> Result<Report, CallError> {
    poll::<MappingPoller>(Recording::of_body(body), target(mapping))
}

/// Returns the names and statuses of the dependencies, and the warnings.
fn outline(mapping: &str, body: &str) -> (String, Vec<String>) {
    let report = report(mapping, body).unwrap_or_else(|error| panic!("{error:?}"));
    let word = |dependency: &Dependency| {
        format!(
            "{}={}{}",
            dependency.name,
            dependency.status.as_str(),
            if dependency.is_skipped() { "(skipped)" } else { "" }
        )
    };
    (report.dependencies.iter().map(word).collect::<Vec<_>>().join(" "), report.warnings)
}

fn check(mapping: &str, body: &str, expected: &str) {
    let (found, warnings) = outline(mapping, body);
    assert_eq!((found.as_str(), warnings.len()), (expected, 0), "{mapping} of {body}: {warnings:?}");
}

const BY_KEY: &str = r#"{"root":"components","fields":{"name":"$key","healthy":{"field":"status","equals":"UP"}}}"#;

#[test]
fn objects_and_arrays_become_dependencies() {
    check(
        BY_KEY,
        r#"{"components":{"db":{"status":"up"},"10":{"status":"DOWN"},"9":{"status":"UP"}}}"#,
        "9=ok 10=critical db=ok",
    );
    check(
        r#"{"root":"data.services","fields":{"name":"n.m","healthy":"h"}}"#,
        r#"{"data":{"services":[{"n":{"m":" a "},"h":true},{"n":{"m":"b"},"h":"Down"}]}}"#,
        " a =ok b=critical",
    );
    check(r#"{"fields":{"name":"n","healthy":"h"}}"#, r#"[{"n":"a","h":"OK"}]"#, "a=ok");
    check(r#"{"root":"","fields":{"name":"$key","healthy":"h"}}"#, r#"{"a":{"h":false}}"#, "a=critical");
    check(
        r#"{"root":"list.1","fields":{"name":"n","healthy":"h.0"}}"#,
        r#"{"list":[[],[{"n":"a","h":[true]}]]}"#,
        "a=ok",
    );
    check(r#"{"root":"a","fields":{"name":"n","healthy":"h"}}"#, r#"{"a":[]}"#, "");
    check(
        r#"{"fields":{"name":"n","healthy":{"field":"errors.length","equals":"0"}}}"#,
        r#"[{"n":"a","errors":[]},{"n":"b","errors":[1]}]"#,
        "a=ok b=critical",
    );
}

#[test]
fn comparisons_are_textual_and_case_insensitive() {
    for (equals, value, expected) in [
        (r#""Healthy""#, r#""HEALTHY""#, "ok"),
        (r#""0""#, "0", "ok"),
        ("0", "0", "ok"),
        ("0", "0.0", "ok"),
        ("1", r#""1""#, "ok"),
        ("true", r#""True""#, "ok"),
        (r#""true""#, "true", "ok"),
        ("false", "true", "critical"),
        (r#""x""#, "{}", "critical"),
        (r#""up ""#, r#""up""#, "critical"),
        (r#""up""#, r#"["UP"]"#, "ok"),
        (r#""1,2""#, "[1,2]", "ok"),
    ] {
        let mapping = format!(r#"{{"fields":{{"name":"n","healthy":{{"field":"v","equals":{equals}}}}}}}"#);
        check(&mapping, &format!(r#"[{{"n":"a","v":{value}}}]"#), &format!("a={expected}"));
    }
}

#[test]
fn the_worse_of_severity_and_healthy_counts() {
    let alone = r#"{"fields":{"name":"n","severity":"s"}}"#;
    for (value, expected) in [
        (r#""ok""#, "ok"),
        (r#""UP""#, "ok"),
        (r#""healthy""#, "ok"),
        ("0", "ok"),
        (r#""warn""#, "warning"),
        (r#""Warning""#, "warning"),
        (r#""degraded""#, "warning"),
        ("1", "warning"),
        (r#""1""#, "warning"),
        (r#""error""#, "critical"),
        (r#""critical""#, "critical"),
        (r#""down""#, "critical"),
        ("2", "critical"),
    ] {
        check(alone, &format!(r#"[{{"n":"a","s":{value}}}]"#), &format!("a={expected}"));
    }
    let both = r#"{"fields":{"name":"n","severity":"s","healthy":"h"}}"#;
    check(
        both,
        r#"[{"n":"a","s":"warn","h":true},{"n":"b","s":"ok","h":false},{"n":"c","h":true}]"#,
        "a=warning b=critical c=ok",
    );
    let (found, warnings) = outline(both, r#"[{"n":"a","s":"on fire","h":true}]"#);
    assert_eq!((found.as_str(), warnings.len()), ("a=unknown", 1), "an unknown word is never ok");
    let (found, warnings) = outline(alone, r#"[{"n":"a"}]"#);
    assert_eq!((found.as_str(), warnings.len()), ("a=unknown", 1));
}

#[test]
fn both_fields_accept_the_words_of_spring_boot_and_asp_net() {
    for (word, expected) in [
        ("Healthy", "ok"),
        ("Degraded", "warning"),
        ("Unhealthy", "critical"),
        ("UP", "ok"),
        ("DOWN", "critical"),
        ("OUT_OF_SERVICE", "critical"),
        ("pass", "ok"),
        ("warn", "warning"),
        ("fail", "critical"),
    ] {
        for field in ["healthy", "severity"] {
            let mapping = format!(r#"{{"root":"entries","fields":{{"name":"$key","{field}":"status"}}}}"#);
            check(&mapping, &format!(r#"{{"entries":{{"a":{{"status":"{word}"}}}}}}"#), &format!("a={expected}"));
        }
    }
}

#[test]
fn values_that_are_not_objects_can_be_mapped() {
    let values = r#"{"fields":{"name":"$key","healthy":"$value"}}"#;
    check(values, r#"{"mqtt":true,"zigbee":false}"#, "mqtt=ok zigbee=critical");
    check(values, r#"{"status":"UP"}"#, "status=ok");
    let alone = r#"{"root":"app.status","fields":{"name":"$key","severity":"$value"}}"#;
    check(alone, r#"{"app":{"status":"OUT_OF_SERVICE"},"groups":["liveness"]}"#, "status=critical");
    let named = r#"{"root":"names","fields":{"name":"$value","healthy":{"field":"$value","equals":"a"}}}"#;
    check(named, r#"{"names":["a","b"]}"#, "a=ok b=critical");
}

#[test]
fn a_report_is_used_for_any_http_status() {
    let answer = |status: u16, body: &str| {
        let recording = serde_json::json!([{
            "request": { "method": "GET", "url": "/" },
            "response": { "status": status, "headers": [], "body": body },
        }]);
        poll::<MappingPoller>(Recording::parse(&recording.to_string()), target(BY_KEY))
    };
    let report = answer(503, r#"{"status":"DOWN","components":{"db":{"status":"DOWN"},"ping":{"status":"UP"}}}"#);
    let report = report.expect("Spring Boot's report");
    assert_eq!(
        report.dependencies.iter().map(|found| found.status).collect::<Vec<_>>(),
        [Status::Critical, Status::Ok]
    );
    let all_up = r#"{"components":{"db":{"status":"UP"}}}"#;
    let error = answer(503, all_up).expect("a report").error_unless_known.expect("an error");
    assert_eq!(error.failure().code, "server_error");
    let expecting = |status: u16| {
        let recording = serde_json::json!([{
            "request": { "method": "GET", "url": "/" },
            "response": { "status": status, "headers": [], "body": all_up },
        }]);
        let settings = BY_KEY.replacen('{', r#"{"expected_status":["2xx",503],"#, 1);
        poll::<MappingPoller>(Recording::parse(&recording.to_string()), target(&settings)).expect("a report")
    };
    assert!(expecting(503).error_unless_known.is_none() && expecting(500).error_unless_known.is_some());
    let said =
        answer(500, r#"{"message":"Internal Server Error","code":500}"#).expect_err("no report").failure().clone();
    assert!(said.message.contains(r#"500 ({"message":"Internal Server Error","code":500})"#), "{said:?}");
    for (status, body, code) in [
        (503, "<html>", "server_error"),
        (503, r#"{"components":{}}"#, "server_error"),
        (404, r#"{"status":404,"error":"Not Found"}"#, "not_found"),
        (401, "", "unauthorized"),
        (200, "<html>", "not_json"),
    ] {
        assert_eq!(answer(status, body).expect_err(body).failure().code, code, "{status} {body}");
    }
}

#[test]
fn skipped_dependencies_are_ok_whatever_the_other_fields() {
    let mapping = r#"{"fields":{"name":"n","healthy":"h","skipped":{"field":"mode","equals":"off"}}}"#;
    check(mapping, r#"[{"n":"a","h":false,"mode":"off"},{"n":"b","mode":"OFF"}]"#, "a=ok(skipped) b=ok(skipped)");
}

#[test]
fn items_without_a_name_are_named_by_their_place_and_unknown_words_are_unknown() {
    let (found, warnings) = outline(
        r#"{"fields":{"name":"n","healthy":"h"}}"#,
        r#"[1, null, {"n":" ","h":true}, {"n":7,"h":true}, {"n":"a","h":"Molten"}, {"n":"b","h":1}, {"n":"c","h":null}, {"n":"d"}]"#,
    );
    assert_eq!(found, "item 1=unknown item 3=ok 7=ok a=unknown b=unknown c=unknown d=unknown");
    assert_eq!(warnings.len(), 6, "{warnings:?}");
}

/// Whatever names an element, its status is reported.
#[test]
fn every_element_keeps_its_status() {
    let by_field = r#"{"fields":{"name":"n","healthy":"v"}}"#;
    let long = format!("\"{}\"", "x".repeat(300));
    for (name, expected) in [
        ("null", "item 2"),
        ("\"\"", "item 2"),
        ("\"  \"", "item 2"),
        ("[1]", "item 2"),
        ("{}", "item 2"),
        ("7", "7"),
        ("7.5", "7.5"),
        ("12345678901234567890", "12345678901234567890"),
        ("true", "true"),
        (&long, long.trim_matches('"')),
        ("\"a\\tb\"", "a\tb"),
    ] {
        let (found, _) = outline(by_field, &format!(r#"[{{"n":"api","v":"UP"}},{{"n":{name},"v":"DOWN"}}]"#));
        assert_eq!(found, format!("api=ok {expected}=critical"), "{name}");
    }
    let (found, _) = outline(by_field, r#"[{"n":"api","v":"UP"},{"v":"DOWN"}]"#);
    assert_eq!(found, "api=ok item 2=critical");
    let by_key = r#"{"fields":{"name":"$key","healthy":"v"}}"#;
    let (found, _) = outline(by_key, r#"{"api":{"v":"UP"},"":{"v":"DOWN"}}"#);
    assert_eq!(found, "api=ok item 2=critical");
    // A part that is left out makes the target unknown if it says that it is not ok.
    for (part, expected) in [
        ("\"DOWN\"", "api=ok x=unknown"),
        ("\"degraded\"", "api=ok x=unknown"),
        ("\"1.2.3\"", "api=ok"),
        ("\"CRASHED\"", "api=ok"),
        ("\"not ok\"", "api=ok"),
        ("\"connection lost\"", "api=ok"),
        ("\"production\"", "api=ok"),
        ("\"https://status.example/errors/down\"", "api=ok"),
        ("false", "api=ok"),
        ("[\"DOWN\"]", "api=ok x=unknown"),
        ("[\"fail\",\"pass\"]", "api=ok x=unknown"),
        ("[false]", "api=ok"),
        ("[[{\"status\":\"fail\"}]]", "api=ok x=unknown"),
        ("[1,\"UP\"]", "api=ok"),
        ("null", "api=ok"),
    ] {
        let (found, warnings) = outline(by_key, &format!(r#"{{"api":{{"v":"UP"}},"x":{part}}}"#));
        assert_eq!((found.as_str(), warnings.len()), (expected, 1), "{part}");
    }
    // It is ok again after another word.
    assert_eq!(outline(by_key, r#"{"api":{"v":"UP"},"x":"UP"}"#), ("api=ok x=ok".to_owned(), Vec::new()));
    let report =
        poll::<MappingPoller>(Recording::of_body(r#"{"api":{"v":"UP"},"x":"1.2.3"}"#), target(by_key)).unwrap();
    assert!(report.gone.is_empty(), "it may have been a dependency before, and nothing says that it was removed");
    let rooted = r#"{"root":"all","fields":{"name":"$key","healthy":"v"}}"#;
    for (part, expected) in [
        ("\"maintenance\"", "x=unknown"),
        ("\"OOM killed\"", "x=unknown"),
        ("\"no connection to the leader\"", "x=unknown"),
        ("\"connected\"", "x=ok"),
        ("\"1.2.3\"", ""),
    ] {
        let (found, _) = outline(rooted, &format!(r#"{{"all":{{"x":{part},"z":{{"v":true}}}}}}"#));
        assert_eq!(found, format!("{expected} z=ok").trim_start(), "{part}");
    }
    // One key with a list and a text.
    let listed = r#"{"root":"all","fields":{"name":"n","healthy":"v"}}"#;
    for body in [r#"{"all":[{"n":"a","v":true}],"all":"DOWN"}"#, r#"{"all":"DOWN","all":[{"n":"a","v":true}]}"#] {
        assert_eq!(outline(listed, body).0, "a=ok all=unknown", "{body}");
    }
}

#[test]
fn of_a_key_that_is_repeated_each_value_counts() {
    let by_key = r#"{"fields":{"name":"$key","healthy":"v"}}"#;
    for (body, expected) in [
        (r#"{"db":{"v":"DOWN"},"db":{"v":"UP"}}"#, "db=critical db=ok"),
        (r#"{"db":{"v":"UP"},"db":{"v":"DOWN"}}"#, "db=ok db=critical"),
        (r#"{"db":{"v":"DOWN","v":"UP"}}"#, "db=critical"),
        (r#"{"db":{"v":"UP","v":"DOWN"}}"#, "db=critical"),
        (r#"{"db":{"v":"UP","v":"WARN"}}"#, "db=warning"),
    ] {
        check(by_key, body, expected);
    }
    let (found, _) = outline(by_key, r#"{"db":{"v":"UP","v":"melted"}}"#);
    assert_eq!(found, "db=unknown");
    check(
        r#"{"root":"c","fields":{"name":"$key","severity":"v"}}"#,
        r#"{"c":{"db":{"v":"DOWN"}},"c":{"db":{"v":"UP"}}}"#,
        "db=critical db=ok",
    );
}

#[test]
fn keys_with_dots_can_be_addressed_and_the_error_says_how() {
    let body = r#"{"health.checks":{"db":{"check.status":"DOWN"}}}"#;
    for root in [r#""\"health.checks\"""#, r#"["health.checks"]"#] {
        for status in [r#""\"check.status\"""#, r#"["check.status"]"#] {
            check(&format!(r#"{{"root":{root},"fields":{{"name":"$key","healthy":{status}}}}}"#), body, "db=critical");
        }
    }
    let error =
        report(r#"{"root":"health.checks","fields":{"name":"$key","healthy":"s"}}"#, body).expect_err("no root");
    assert!(error.failure().message.contains(r#"'"health.checks"'"#), "{error:?}");
    let root = r#"{"root":["health.checks"],"fields":{"name":"$key","healthy":"check.status"}}"#;
    let (found, warnings) = outline(root, body);
    assert!(found == "db=unknown" && warnings[0].contains(r#"'"check.status"'"#), "{warnings:?}");
}

#[test]
fn arrays_below_a_key_are_its_elements() {
    let draft = r#"{"root":"checks","fields":{"name":"$key","severity":"status"},"overall":"status"}"#;
    let body = r#"{"status":"warn","checks":{
        "cassandra:responseTime":[{"componentId":"n1","status":"pass"},{"componentId":"n2","status":"fail"}],
        "uptime":[{"status":"pass"}],"cpu":[{"status":"pass"},{"status":"warn"}]}}"#;
    check(
        draft,
        body,
        "cassandra:responseTime/n1=ok cassandra:responseTime/n2=critical uptime=ok cpu=ok cpu/2=warning status=warning",
    );
    // A path that begins with an index means the array itself.
    let first = r#"{"root":"checks","fields":{"name":"$key","healthy":"0.status"}}"#;
    check(
        first,
        r#"{"checks":{"cache:ping":[{"status":"pass"}],"db":[{"status":"fail"}]}}"#,
        "cache:ping=ok db=critical",
    );
}

#[test]
fn the_status_of_the_whole_and_several_roots_can_be_mapped() {
    let whole = r#"{"root":"components","fields":{"name":"$key","healthy":"status"},"overall":"status"}"#;
    check(whole, r#"{"status":"OUT_OF_SERVICE","components":{"db":{"status":"UP"}}}"#, "db=ok status=critical");
    check(whole, r#"{"status":"UP","status":"DOWN","components":{}}"#, "status=critical");
    let found = report(whole, r#"{"status":"DOWN","components":{"db":{"status":"DOWN"}}}"#).expect("a report");
    assert_eq!(found.dependencies[1].runs_on, ["db"], "both say the same");
    for (body, expected) in [
        (r#"{"components":{"db":{"status":"UP"}}}"#, "db=ok status=unknown"),
        (r#"{"status":"UP"}"#, "status=ok"),
        (r#"{"status":"UP","components":null}"#, "status=ok"),
        (r#"{"status":"UP","components":"UP"}"#, "status=ok"),
        (r#"{"status":"UP","components":"DOWN"}"#, "components=unknown status=ok"),
        (r#"{"status":"UP","components":false}"#, "components=unknown status=ok"),
    ] {
        assert_eq!(outline(whole, body).0, expected, "{body}");
    }
    let several = r#"{"root":"a","fields":{"name":"$key","healthy":"up"},"more":[{"root":"b","fields":{"name":"n","severity":"level"}}]}"#;
    check(several, r#"{"a":{"x":{"up":true}},"b":[{"n":"y","level":2}]}"#, "x=ok y=critical");
    let error = report(several, r#"{"a":{"x":{"up":true}}}"#).expect_err("no b");
    assert_eq!(error.failure().code, "unexpected_shape");
}

#[test]
fn numbers_have_bounds() {
    let battery = r#"{"fields":{"name":"n","severity":{"warning":{"field":"b","lessThan":50},"critical":{"field":"b","lessThan":20}}}}"#;
    for (value, expected) in [
        ("80", "ok"),
        ("50", "ok"),
        ("49", "warning"),
        ("19.9", "critical"),
        ("\"12\"", "critical"),
        ("NaN", "unknown"),
        ("null", "unknown"),
        ("\"low\"", "unknown"),
    ] {
        let (found, _) = outline(battery, &format!(r#"[{{"n":"a","b":{value}}}]"#));
        assert_eq!(found, format!("a={expected}"), "{value}");
    }
    let both = r#"{"fields":{"name":"n","healthy":{"field":"installed","equals":true},"severity":{"critical":{"field":"maintenance","equals":true}}}}"#;
    check(
        both,
        r#"[{"n":"a","installed":true,"maintenance":false},{"n":"b","installed":true,"maintenance":true}]"#,
        "a=ok b=critical",
    );
}

#[test]
fn a_single_word_can_be_the_body() {
    let word = r#"{"fields":{"name":"$key","healthy":"$value"}}"#;
    for (body, expected) in [
        ("\"Healthy\"", "status=ok"),
        ("\"Unhealthy\"", "status=critical"),
        ("true", "status=ok"),
        ("false", "status=critical"),
    ] {
        check(word, body, expected);
    }
    assert_eq!(report(word, "null").expect_err("null").failure().code, "unexpected_shape");
    check(r#"{"fields":{"name":"$key","severity":"$value"}}"#, "2", "status=critical");
}

#[test]
fn numbers_that_nobody_reads_do_not_fail_a_poll() {
    let mapping = r#"{"fields":{"name":"n","healthy":"h"}}"#;
    for odd in ["NaN", "-Infinity", "1e400", "123456789012345678901234567890"] {
        check(mapping, &format!(r#"[{{"n":"a","h":true,"rate":{odd}}}]"#), "a=ok");
        let (found, warnings) = outline(mapping, &format!(r#"[{{"n":"a","h":{odd}}}]"#));
        assert_eq!((found.as_str(), warnings.len()), ("a=unknown", 1), "{odd}");
    }
}

#[test]
fn every_field_is_read() {
    let mapping = r#"{"fields":{"name":"n","healthy":"h","latency":"l","impact":"i","description":"d","type":"t",
        "checkDetails":"c","contact":"k","error":"e","errorMessage":"m"}}"#;
    let body = r#"[{"n":"a","h":false,"l":4.5,"i":"bad","d":"the db","t":"database","c":{"q":1},"k":{"who":"me"},"e":[1],"m":"no"},
        {"n":"b","h":true,"l":"00:00:00.02","i":3,"t":" ","c":[1],"k":"x","e":null,"m":5}]"#;
    let report = report(mapping, body).expect("an array");
    let [a, b] = &report.dependencies[..] else { panic!("{report:?}") };
    assert_eq!((a.latency_ms, a.impact.as_deref(), a.description.as_deref()), (Some(4.5), Some("bad"), Some("the db")));
    assert_eq!((a.kind.as_deref(), a.check_details.as_deref()), (Some("database"), Some(r#"{"q":1}"#)));
    assert_eq!((a.contact.as_deref(), a.error.as_deref()), (Some(r#"{"who":"me"}"#), Some("[1]")));
    assert_eq!((a.error_message.as_deref(), a.code), (Some("no"), None), "no code is invented");
    assert_eq!(b, &Dependency { latency_ms: Some(20.0), ..Dependency::ok("b") });
}

#[test]
fn a_status_that_is_not_ok_has_a_reason() {
    let by_status = r#"{"fields":{"name":"n","healthy":"state.word","errorMessage":"m"}}"#;
    let by_values = r#"{"fields":{"name":"$key","severity":"$value"}}"#;
    let by_key = r#"{"fields":{"name":"n","healthy":"\"check.status\""}}"#;
    let by_both = r#"{"fields":{"name":"n","healthy":"h","severity":"s"}}"#;
    let by_bounds = r#"{"fields":{"name":"n","healthy":"up",
        "severity":{"warning":{"field":"q","moreThan":5},"critical":{"field":"q","moreThan":9}}}}"#;
    for (mapping, body, expected) in [
        (by_status, r#"[{"n":"a","state":{"word":"DOWN"}}]"#, Some(r#""state.word" is "DOWN""#)),
        (by_status, r#"[{"n":"a","state":{"word":"DOWN"},"m":"disk full"}]"#, Some("disk full")),
        (by_status, r#"[{"n":"a","state":{"word":"warn","word":"up"}}]"#, Some(r#""state.word" is "warn""#)),
        (by_status, r#"[{"n":"a","state":{"word":false}}]"#, Some(r#""state.word" is false"#)),
        (by_status, r#"[{"n":"a","state":{"word":"UP"}}]"#, None),
        (
            by_status,
            r#"[{"n":"a","state":{"word":"banana","word":"up"}}]"#,
            Some(r#""healthy" is "banana", which is not a known word or number"#),
        ),
        (by_both, r#"[{"n":"a","h":true,"s":"critical","s":null}]"#, Some(r#""s" is "critical""#)),
        (by_both, r#"[{"n":"a","h":true,"s":null}]"#, None),
        (by_key, r#"[{"n":"a","check.status":"DOWN"}]"#, Some(r#""check.status" is "DOWN""#)),
        (by_values, r#"{"a":"down"}"#, Some(r#"it is "down""#)),
        (by_values, r#"{"a":1}"#, Some("it is 1")),
        (by_bounds, r#"[{"n":"a","up":true,"q":7}]"#, Some(r#""q" is 7"#)),
        (by_bounds, r#"[{"n":"a","up":false,"q":7}]"#, Some(r#""up" is false"#)),
        (by_bounds, r#"[{"n":"a","up":true,"q":1}]"#, None),
    ] {
        let report = report(mapping, body).expect("a report");
        assert_eq!(report.dependencies[0].error_message.as_deref(), expected, "{mapping} {body}");
    }
}

#[test]
fn a_missing_root_or_an_invalid_body_fails_the_poll() {
    for body in ["{}", r#"{"components":3}"#, r#"{"components":null}"#, "7", "<html>"] {
        let error = report(BY_KEY, body).expect_err(body);
        assert!(matches!(error, CallError::Transient(_)), "{body}");
    }
}

/// Returns the problems of a mapping.
fn told(mapping: &str) -> String {
    check_settings::<MappingPoller>(mapping).iter().map(SettingsProblem::sentence).collect::<Vec<_>>().join("; ")
}

#[test]
fn bad_mappings_are_reported() {
    let bad = [
        ("{}", "fields"),
        (r#"{"fields":{"healthy":"h"}}"#, "name"),
        (r#"{"fields":{"name":"n"}}"#, "severity"),
        (r#"{"fields":{"name":"n","healthy":"h","color":"c"}}"#, "color"),
        (r#"{"fields":{"name":"","healthy":"h"}}"#, "empty path"),
        (r#"{"fields":{"name":"n","healthy":"$key"}}"#, "$key"),
        (r#"{"fields":{"name":"n","healthy":{"field":"","equals":"a"}}}"#, "empty path"),
        (r#"{"fields":{"name":"n","healthy":{"field":"f","equals":""}}}"#, "equals"),
        (r#"{"fields":{"name":"n","healthy":{"field":"f"}}}"#, "fields.healthy: it compares with nothing"),
        (r#"{"fields":{"name":"n","healthy":{"field":"f","below":3}}}"#, "`below`, expected one of `field`"),
        (
            r#"{"fields":{"name":"n","healthy":{"field":"f","matches":"("}}}"#,
            "fields.healthy.matches: it is not a regular",
        ),
        (r#"{"fields":{"name":"n","healthy":{"field":"f","oneOf":[]}}}"#, "fields.healthy.oneOf: it is empty"),
        (r#"{"fields":{"name":"n","severity":{}}}"#, "fields.severity: it is empty"),
        (
            r#"{"fields":{"name":"n","severity":{"critical":{"field":"","lessThan":1}}}}"#,
            "severity.critical.field: it is an empty",
        ),
        (
            r#"{"fields":{"name":"n","healthy":"h"},"more":[{"root":"$.a","fields":{"name":"n"}}]}"#,
            "more.0.root: it is JSONPath",
        ),
        (r#"{"fields":{"name":"n","healthy":"h"},"overall":"/status"}"#, "overall: it is a JSON pointer"),
        (r#"{"fields":{"name":"n","healthy":"h"},"expected_status":["9xx"]}"#, "expected_status.0"),
        (r#"{"root":"[\"health.checks\"]","fields":{"name":"n","healthy":"h"}}"#, r#"as '"health.checks"'"#),
        (r#"{"fields":{"name":"n","healthy":"h","contact":{"field":"f","equals":"e"}}}"#, "a path is a text"),
    ];
    for (mapping, word) in bad {
        let problems = told(mapping);
        assert!(problems.contains(word) || problems.contains("expected"), "{mapping}: {problems}");
        assert!(!problems.is_empty(), "{mapping}");
    }
    assert_eq!(told(BY_KEY), "");
    let schema: serde_json::Value = serde_json::from_str(&describe::<MappingPoller>().settings_schema).expect("JSON");
    assert_eq!(schema["required"][0], "fields");
}
