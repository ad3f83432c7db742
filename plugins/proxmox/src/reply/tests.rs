use super::*;
use crate::error::ErrorClass;
use polliwog_sdk::http;
use polliwog_sdk::testing::{Recording, poll, target};
use polliwog_sdk::{CallError, Endpoint, Info, NoSettings, Poller, Report};
use serde_json::{Value, json};

/// Reads one path of a product.
struct Reader<const PRODUCT: u8>;

impl<const PRODUCT: u8> Poller for Reader<PRODUCT> {
    type Settings = NoSettings;
    const INFO: Info = Info { kind: "reader", ..Info::SERVICE };

    fn poll(_: &Endpoint, _: NoSettings) -> Result<Report, CallError> {
        let product = [Product::Ve, Product::Backup, Product::Mail][usize::from(PRODUCT)];
        let response = http::Request::get("/cluster/status").send().expect("it is recorded");
        read::<Vec<Value>>(product, "/cluster/status", &response, &text(&response))?;
        Ok(Report::empty())
    }
}

/// Returns whether the failure is permanent, its code, and its message.
fn failure<const PRODUCT: u8>(status: u16, reason: &str, body: &str) -> (bool, String, String) {
    let exchange = json!([{
        "request": { "method": "GET", "url": "/cluster/status" },
        "response": { "status": status, "reason": reason, "body": body, "headers": [["location", "https://sso.example/"]] },
    }]);
    let result = poll::<Reader<PRODUCT>>(Recording::parse(&exchange.to_string()), target("{}"));
    let error = result.expect_err("it is not a good answer");
    let failure = error.failure().clone();
    (matches!(error, CallError::Misconfigured(_)), failure.code, failure.message)
}

/// Compares a failure: whether it is permanent, its code, and a part of its message.
fn check(status: u16, reason: &str, body: &str, (permanent, code, says): (bool, &str, &str)) {
    let found = failure::<0>(status, reason, body);
    assert_eq!((found.0, found.1.as_str()), (permanent, code), "{status} {reason} {body}: {}", found.2);
    assert!(found.2.contains(says), "{status} {reason} {body}: {}", found.2);
}

#[test]
fn each_error_has_its_own_message() {
    for (status, reason, body, permanent, code, says) in [
        (401, "No ticket", "", true, "unauthorized", "(401, \"No ticket\")"),
        (
            401,
            "no such token 'poll' for user 'monitor@pve'",
            "",
            true,
            "unauthorized",
            "the user is right and has no token of that name: \"pveum user token list",
        ),
        (
            401,
            "invalid token value!",
            "",
            true,
            "unauthorized",
            "its secret is wrong; if the secret is lost, create the token again",
        ),
        (401, "user 'monitor@pve' is disabled", "", true, "unauthorized", "pveum user modify USER@REALM -enable 1"),
        (
            403,
            "Permission check failed (/nodes/pve1, Sys.Modify)",
            "",
            true,
            "forbidden",
            "\"pveum role add PolliwogMore -privs Sys.Modify\", \"pveum acl modify /nodes/pve1 -user",
        ),
        (
            403,
            "Permission check failed (/, Sys.Audit)",
            r#"{"data":null}"#,
            true,
            "forbidden",
            "lack Sys.Audit on /: run on the server \"pveum acl modify",
        ),
        (
            403,
            "Forbidden",
            r#"{"data":null,"message":"Permission check failed (/vms/100, VM.Audit|VM.Monitor)\n"}"#,
            true,
            "forbidden",
            "lack VM.Audit or VM.Monitor on /vms/100",
        ),
        (
            400,
            "Parameter verification failed.",
            r#"{"errors":{"vmid":"not a number"},"data":null}"#,
            true,
            "refused",
            "\"vmid: not a number\"",
        ),
        (501, "Method 'GET /x' not implemented", "", true, "not_served", "not older than this plugin supports"),
        (
            595,
            "No route to host",
            "",
            false,
            "node_unreachable",
            "cannot reach the node behind /cluster/status (595, \"No route to host\")",
        ),
    ] {
        check(status, reason, body, (permanent, code, says));
    }
}

#[test]
fn each_server_error_has_its_own_message() {
    for (status, reason, body, permanent, code, says) in [
        (596, "Connection timed out", "", false, "node_unreachable", "596"),
        (
            500,
            "pveceph configuration not initialized",
            r#"{"data":null}"#,
            false,
            "server_error",
            "pveceph configuration",
        ),
        (503, "Service Unavailable", "<html>busy</html>", false, "server_error", "Service Unavailable"),
        (429, "Too Many Requests", "", false, "too_busy", "asks for fewer requests"),
    ] {
        check(status, reason, body, (permanent, code, says));
    }
}

#[test]
fn unreadable_answers_have_their_own_messages() {
    for (status, reason, body, permanent, code, says) in [
        (302, "Found", "", true, "redirect", "https://sso.example/"),
        (200, "OK", "<!DOCTYPE html><title>Log in</title>", false, "web_page", "https://HOST:8006"),
        (200, "OK", r#"{"data":[{"a":1}"#, false, "truncated", "ends in the middle"),
        (200, "OK", r#"{"data":{"a":1}}"#, false, "unexpected_shape", "another shape"),
        (200, "OK", r#"{"data":null}"#, false, "unexpected_shape", "another shape"),
        (200, "OK", "it works", false, "not_json", "begins \"it works\""),
        (200, "OK", "", false, "truncated", "ends in the middle"),
    ] {
        check(status, reason, body, (permanent, code, says));
    }
}

#[test]
fn backup_server_writes_plain_text_and_mail_gateway_has_no_tokens() {
    let (_, code, says) = failure::<1>(401, "Unauthorized", "authentication failed");
    assert_eq!(code, "unauthorized");
    assert!(says.contains("\"authentication failed\"") && says.contains("list-tokens"), "{says}");
    let (_, _, says) = failure::<1>(403, "Forbidden", "permission check failed");
    assert!(
        says.contains(
            "lack the rights for /cluster/status: run on the server \"proxmox-backup-manager acl update / Audit"
        ),
        "{says}"
    );
    let (permanent, code, says) =
        failure::<1>(400, "Bad Request", "datastore 'x' is unavailable: offline maintenance mode: disk swap");
    assert_eq!((permanent, code.as_str()), (false, "refused"));
    assert!(says.contains("disk swap"), "{says}");
    let (_, _, says) = failure::<2>(401, "API tokens not implemented", "");
    assert!(says.contains("API tokens not implemented") && says.contains("the setting \"username\""), "{says}");
}

#[test]
fn another_product_and_an_unknown_server_are_named() {
    for (reason, body, says) in [
        ("Unauthorized", "authentication failed", "this is Proxmox Backup Server, not Proxmox VE"),
        ("API tokens not implemented", "", "this is Proxmox Mail Gateway, not Proxmox VE"),
        ("Unauthorized", "who are you?", "in words that Proxmox VE does not use"),
    ] {
        let (_, code, found) = failure::<0>(401, reason, body);
        assert!(code == "unauthorized" && found.contains(says), "{found}");
    }
}

#[test]
fn long_quotations_are_cut() {
    let (_, _, says) = failure::<0>(500, &"x".repeat(5000), "");
    assert!(says.len() < 500, "{says}");
}

/// Fails with the class of the error as its code.
struct Classifier;

impl Poller for Classifier {
    type Settings = NoSettings;
    const INFO: Info = Info { kind: "classifier", ..Info::SERVICE };

    fn poll(_: &Endpoint, _: NoSettings) -> Result<Report, CallError> {
        let response = http::Request::get("/cluster/ceph/status").send().expect("it is recorded");
        let error =
            read::<Value>(Product::Ve, "/cluster/ceph/status", &response, &text(&response)).expect_err("it is not 2xx");
        Err(CallError::permanent(format!("{:?}", error.class), error.message))
    }
}

#[test]
fn errors_are_classified() {
    for (status, reason, class) in [
        (401, "No ticket", ErrorClass::Unauthorized),
        (403, "Permission check failed (/, Sys.Audit)", ErrorClass::Forbidden),
        (404, "Not Found", ErrorClass::NotServed),
        (595, "No route to host", ErrorClass::NodeUnreachable),
        (400, "Parameter verification failed.", ErrorClass::Refused),
        (429, "Too Many Requests", ErrorClass::Other),
        (500, "got timeout", ErrorClass::ServerFailed),
        (500, "binary not installed: /usr/bin/ceph-mon", ErrorClass::NotInstalled),
        (500, "pveceph configuration not initialized", ErrorClass::NotConfigured),
    ] {
        let exchange = json!([{
            "request": { "method": "GET", "url": "/cluster/ceph/status" },
            "response": { "status": status, "reason": reason },
        }]);
        let result = poll::<Classifier>(Recording::parse(&exchange.to_string()), target("{}"));
        let error = result.expect_err("it is an error");
        assert_eq!(error.failure().code, format!("{class:?}"), "{status} {reason}");
    }
}

/// Returns the list in a body, or the code of the error.
fn list(body: &[u8]) -> Result<Vec<String>, &'static str> {
    struct Lister;

    impl Poller for Lister {
        type Settings = NoSettings;
        const INFO: Info = Info { kind: "lister", ..Info::SERVICE };

        fn poll(_: &Endpoint, _: NoSettings) -> Result<Report, CallError> {
            let response = http::Request::get("").send().expect("it is recorded");
            let items: Vec<String> = read(Product::Ve, "/names", &response, &text(&response))?;
            let mut report = Report::empty();
            items.into_iter().for_each(|item| report.warn(item));
            Ok(report)
        }
    }

    match poll::<Lister>(Recording::of_body(body), target("{}")) {
        Ok(report) => Ok(report.warnings),
        Err(error) => Err(match error.failure().code.as_str() {
            "unexpected_shape" => "unexpected_shape",
            "truncated" => "truncated",
            "not_json" => "not_json",
            other => panic!("{other}: {}", error.failure().message),
        }),
    }
}

#[test]
fn the_content_is_found_in_each_form_of_a_body() {
    let forms: [(&[u8], &[&str]); 14] = [
        (br#"{"data":["a","b"]}"#, &["a", "b"]),
        (b"{\"data\":[\"a\"]}\n", &["a"]),
        (br#"{"data":["a"],"total":5}"#, &["a"]),
        (br#"{"data": ["a"] , "success": 1 }"#, &["a"]),
        (br#" { "data" : [ "a" ] } "#, &["a"]),
        (br#"{"total":5,"data":["a"]}"#, &["a"]),
        (br#"{"x":{"data":1},"data":[]}"#, &[]),
        (br#"["a"]"#, &["a"]),
        (b" [\"a\"]\r\n", &["a"]),
        (br#"["data"]"#, &["data"]),
        (br#"{"data":["\u00e9\n\"}"]}"#, &["\u{e9}\n\"}"]),
        ("{\"data\":[\"\u{e9}\u{1f600}\"]}".as_bytes(), &["\u{e9}\u{1f600}"]),
        (b"{\"data\":[\"a\xffb\"]}", &["a\u{fffd}b"]),
        (b"[\"\xc3\"]", &["\u{fffd}"]),
    ];
    for (body, expected) in forms {
        let found = list(body);
        assert_eq!(
            found.as_deref().map_err(|code| *code),
            Ok(&expected.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()[..]),
            "{:?}",
            String::from_utf8_lossy(body)
        );
    }
}

#[test]
fn a_body_that_is_not_a_reply_fails_with_its_cause() {
    for (body, code) in [
        (&br#"{"data":["a"]"#[..], "truncated"),
        (br#"{"data":["a""#, "truncated"),
        (br#"{"data":"#, "truncated"),
        (br#"{"data":["a"],"total"#, "truncated"),
        (br#"{"data":[1]"#, "truncated"),
        (br#"["a""#, "truncated"),
        (b"", "truncated"),
        (b" ", "truncated"),
        (br#"{"data":[1]}"#, "unexpected_shape"),
        (br#"{"data":null,"message":"no"}"#, "unexpected_shape"),
        (br#"{"message":"no"}"#, "unexpected_shape"),
        (br#"{"data":["a"]}}"#, "not_json"),
        (br#"{"data":["a"]]"#, "not_json"),
        (br#"{"data":["a"].5}"#, "not_json"),
        (br#"{"data":["a"] "total":5}"#, "not_json"),
        (br#"["a"] x"#, "not_json"),
        (br#"["a"]5"#, "not_json"),
        (b"\xff\xfe", "not_json"),
    ] {
        assert_eq!(list(body), Err(code), "{:?}", String::from_utf8_lossy(body));
    }
}
