//! Values of other shapes than a mapping expects.

use super::{check, outline, report};

#[test]
fn of_an_object_that_is_repeated_each_one_has_to_be_skipped() {
    let mapping = r#"{"fields":{"name":"$key","healthy":"h.s","skipped":"h.k"}}"#;
    for (body, expected) in [
        (r#"{"db":{"h":{"s":"DOWN"},"h":{"s":"UP","k":true}}}"#, "db=critical"),
        (r#"{"db":{"h":{"s":"DOWN","k":false},"h":{"s":"UP","k":true}}}"#, "db=critical"),
        (r#"{"db":{"h":{"s":"DOWN","k":true},"h":{"s":"UP","k":true}}}"#, "db=ok(skipped)"),
        (r#"{"db":{"h":{"k":true}}}"#, "db=ok(skipped)"),
    ] {
        check(mapping, body, expected);
    }
}

#[test]
fn what_is_not_to_be_there_is_not_missed_in_other_shapes() {
    for (comparison, value, expected) in [
        (r#""noneOf":["failed"]"#, r#""failed\n""#, "critical"),
        (r#""notEquals":"failed""#, r#"" FAILED ""#, "critical"),
        (r#""noneOf":["failed"]"#, r#"{"s":"failed"}"#, "unknown"),
        (r#""excludes":"failed""#, r#"{"state":"failed"}"#, "unknown"),
        (r#""excludes":"failed""#, r#"[{"state":"failed"}]"#, "unknown"),
        (r#""excludes":"failed""#, r#"["ok","failed"]"#, "critical"),
        (r#""equals":9007199254740993"#, "9007199254740992", "critical"),
        (r#""equals":9007199254740993"#, "9007199254740993", "ok"),
        (r#""equals":4"#, "4.0", "ok"),
        (r#""equals":4"#, r#""4""#, "ok"),
    ] {
        let mapping = format!(r#"{{"fields":{{"name":"n","healthy":{{"field":"v",{comparison}}}}}}}"#);
        let (found, _) = outline(&mapping, &format!(r#"[{{"n":"a","v":{value}}}]"#));
        assert_eq!(found, format!("a={expected}"), "{comparison} {value}");
    }
    let bound = r#"{"fields":{"name":"n","severity":{"critical":{"field":"v","equals":"failed"}}}}"#;
    let (found, _) = outline(bound, r#"[{"n":"a","v":{"s":"failed"}}]"#);
    assert_eq!(found, "a=unknown");
}

#[test]
fn below_a_root_a_member_that_describes_a_failure_is_unknown() {
    for (part, expected) in [
        ("false", "x=unknown"),
        ("[false]", "x=unknown"),
        ("\"CRASHED\"", "x=unknown"),
        ("\"not ok\"", "x=unknown"),
        ("\"connection lost\"", "x=unknown"),
        ("\"FAIL!\"", "x=unknown"),
        ("\"java.net.ConnectException: Connection refused\"", "x=unknown"),
        ("\"could not connect to the server at 10.0.0.7, port 5432\"", "x=unknown"),
        ("\"no\"", "x=unknown"),
        ("\"major_outage\"", "x=unknown"),
        ("503", "x=unknown"),
        ("\"UP\"", "x=ok"),
        ("\"no error\"", ""),
        ("\"dead-letter-worker\"", ""),
        ("\"production\"", ""),
        ("\"https://status.example/errors/down\"", ""),
        ("true", ""),
        ("3", ""),
        ("null", ""),
    ] {
        let body = format!(r#"{{"c":{{"x":{part}}}}}"#);
        let (found, _) = outline(r#"{"root":"c","fields":{"name":"$key","healthy":"v"}}"#, &body);
        assert_eq!(found, expected, "{part}");
    }
    let severity = r#"{"root":"c","fields":{"name":"$key","severity":"v"}}"#;
    for (part, expected) in [("2", "x=unknown"), ("0", ""), ("\"1\"", "x=unknown")] {
        assert_eq!(outline(severity, &format!(r#"{{"c":{{"x":{part}}}}}"#)).0, expected, "{part}");
    }
}

#[test]
fn a_body_of_one_word_is_a_status() {
    let value = r#"{"fields":{"name":"$key","healthy":"$value"}}"#;
    for (body, expected) in [
        ("Healthy", "status=ok"),
        ("Unhealthy\r\n", "status=critical"),
        ("Degraded", "status=warning"),
        ("out_of_service", "status=critical"),
        ("melted", "status=unknown"),
        ("\"Healthy\"", "status=ok"),
    ] {
        assert_eq!(outline(value, body).0, expected, "{body:?}");
    }
    for (mapping, body) in [(value, "<html>"), (value, ""), (r#"{"fields":{"name":"n","healthy":"v"}}"#, "Healthy")] {
        let failure = report(mapping, body).unwrap_err();
        assert_eq!(failure.failure().code, "not_json", "{body:?}");
    }
}

#[test]
fn the_status_of_the_whole_counts_although_its_parts_are_hidden() {
    let spring = r#"{"root":"components","overall":"status","fields":{"name":"$key","healthy":"status"}}"#;
    for (body, expected) in [(r#"{"status":"DOWN"}"#, "status=critical"), (r#"{"status":"UP"}"#, "status=ok")] {
        let (found, warnings) = outline(spring, body);
        assert_eq!((found.as_str(), warnings.len()), (expected, 1), "{warnings:?}");
    }
    for body in [r#"{"status":"?"}"#, r#"{"message":"no"}"#] {
        let failure = report(spring, body).unwrap_err();
        assert_eq!(failure.failure().code, "unexpected_shape", "{body}");
    }
}

#[test]
fn the_status_of_the_whole_is_no_part_of_it() {
    let mapping = r#"{"overall":"status","fields":{"name":"$key","healthy":"status"}}"#;
    for (status, expected) in [("UP", "db=ok status=ok"), ("DOWN", "db=ok status=critical")] {
        check(mapping, &format!(r#"{{"status":"{status}","db":{{"status":"UP"}}}}"#), expected);
    }
}
