use super::*;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use proptest::prelude::*;

const SECRET: &str = "s3cr\"t/ü &val";

/// Returns a masked body.
fn body(masker: &Masker, body: &str) -> String {
    String::from_utf8(wait(masker.body(body.as_bytes().to_vec()))).unwrap()
}

/// Returns a masked header.
fn text(masker: &Masker, text: &str) -> String {
    wait(masker.text(text.to_owned()))
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn masked(text: &str) -> String {
    body(&Masker::new([SECRET, "12345678"].into_iter()), text)
}

/// Encodes a value as a server may do.
type Form = fn(&str) -> String;

/// The encodings in which servers send a value back.
const FORMS: [(&str, Form); 18] = [
    ("plain", str::to_owned),
    ("upper case", |value| value.to_ascii_uppercase()),
    ("JSON", json),
    ("JSON in JSON", |value| json(&json(value))),
    ("JSON with escapes", |value| value.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect()),
    ("percent", |value| value.bytes().map(|byte| format!("%{byte:02x}")).collect()),
    ("percent twice", |value| value.bytes().map(|byte| format!("%25{byte:02X}")).collect()),
    ("form", |value| url::form_urlencoded::byte_serialize(value.as_bytes()).collect()),
    ("entities", |value| html(value)),
    ("numeric entities", |value| value.chars().map(|c| format!("&#x{:X};", u32::from(c))).collect()),
    ("entities in JSON", |value| json(&html(value))),
    ("base64", |value| STANDARD.encode(value)),
    ("base64 for URLs", |value| URL_SAFE.encode(value)),
    ("base64 twice", |value| STANDARD.encode(STANDARD.encode(value))),
    ("base64 of user and password", |value| STANDARD.encode(format!("me:{value}"))),
    ("hexadecimal", |value| value.bytes().map(|byte| format!("{byte:02X}")).collect()),
    ("Rust", |value| value.chars().map(|c| format!("\\u{{{:x}}}", u32::from(c))).collect()),
    ("C", |value| value.bytes().map(|byte| format!("\\x{byte:02x}")).collect()),
];

fn json(value: &str) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn html(value: &str) -> String {
    value.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&#62;").replace('\'', "&#39;")
}

#[test]
fn a_secret_is_found_in_a_text_that_resembles_it() {
    let secret = "ababababX";
    let masker = Masker::new([secret].into_iter());
    let (before, behind) = ("abab ".repeat(5_000), "abab ".repeat(5_000));
    assert_eq!(body(&masker, &before), before);
    for (start, end) in [("", ""), (&before[..], ""), ("", &behind[..]), (&before, &behind)] {
        let seen = body(&masker, &format!("{start}{secret}{end}"));
        assert_eq!(seen, format!("{start}{}{end}", "*".repeat(secret.len())));
    }
}

#[test]
fn masked_json_stays_valid_json() {
    let stars = "*".repeat(SECRET.len());
    for (body, expected) in [
        (r#"{"a":"s3cr\"t/ü &val","b":1}"#.to_owned(), format!(r#"{{"a":"{stars}","b":1}}"#)),
        (r#"{"s3cr\"t\/\u00fc \u0026val":[]}"#.to_owned(), format!(r#"{{"{stars}":[]}}"#)),
        (r#"["x s3cr\"t/ü &val y"]"#.to_owned(), format!(r#"["x {stars} y"]"#)),
        ("[12345678, 1]".to_owned(), "[0, 1]".to_owned()),
        ("[\"12345678\"]".to_owned(), "[\"********\"]".to_owned()),
        (r#"["nothing \n here\/"]"#.to_owned(), r#"["nothing \n here\/"]"#.to_owned()),
    ] {
        assert_eq!(masked(&body), expected);
    }
}

#[test]
fn a_secret_that_contains_escapes_is_found_behind_three_layers_of_escapes() {
    let layers = |secret: &str| (0..3).fold(secret.to_owned(), |text, _| json(&text));
    // Decoding the first layer of the server also decodes the percent escape of the secret itself.
    for secret in [r#"Aa%aa\"+/A%A"#, r#"%41\"&amp;bcdefgh"#] {
        let seen = body(&Masker::new([secret].into_iter()), &format!(r#"{{"s":"{}"}}"#, layers(secret)));
        assert_eq!(seen, format!(r#"{{"s":"{}"}}"#, "*".repeat(secret.len())), "{secret}");
    }
}

#[test]
fn a_secret_that_spans_json_tokens_is_masked_and_changes_the_structure() {
    let masker = Masker::new(["a\",\"bcdef"].into_iter());
    assert_eq!(body(&masker, r#"["a","bcdef"]"#), r#"["*********"]"#);
}

#[test]
fn every_encoding_is_masked_with_as_many_stars_as_the_value_has_bytes() {
    let stars = "*".repeat(SECRET.len());
    for (name, form) in FORMS {
        let seen = masked(&format!("<p> {} </p>", form(SECRET)));
        let is_run = name.starts_with("base64") || name == "hexadecimal";
        let expected = if is_run { "*".repeat(form(SECRET).len()) } else { stars.clone() };
        assert_eq!(seen, format!("<p> {expected} </p>"), "{name}");
    }
    let wrapped: Vec<String> = STANDARD
        .encode(format!("user:{SECRET}"))
        .as_bytes()
        .chunks(7)
        .map(|line| String::from_utf8_lossy(line).into())
        .collect();
    let seen = masked(&wrapped.join("\r\n"));
    assert!(seen.bytes().all(|byte| byte == b'*'), "{seen}");
}

#[test]
fn a_truncated_quotation_is_masked_to_the_end_of_the_string_or_line() {
    let masker = Masker::new(["monitor@pve!polliwog=11111111-2222"].into_iter());
    let stars = "*".repeat(34);
    for (quoted, expected) in [
        ("invalid token monitor@pve!polliw...\nnext", format!("invalid token {stars}\nnext")),
        ("invalid token monitor@pve!", format!("invalid token {stars}")),
        (r#"{"a":"no monitor@pve!poll… here","b":"c"}"#, format!(r#"{{"a":"no {stars}","b":"c"}}"#)),
        ("fewer than eight bytes: monitor", "fewer than eight bytes: monitor".to_owned()),
    ] {
        assert_eq!(body(&masker, quoted), expected);
    }
}

#[test]
fn both_halves_of_a_secret_with_a_separator_are_masked_separately() {
    let masker = Masker::new(["operator:swordfish-77", "root@pam!mon=0000-1111-2222"].into_iter());
    for (seen, expected) in [
        ("password swordfish-77!", "password ************!"),
        ("user OPERATOR!", "user ********!"),
        ("both operator:swordfish-77!", "both *********************!"),
        ("value 0000-1111-2222!", "value **************!"),
    ] {
        assert_eq!(body(&masker, seen), expected);
        assert_eq!(text(&masker, seen), expected);
    }
    let short = Masker::new(["me:pw-is-long-enough"].into_iter());
    assert_eq!(body(&short, "me and you"), "me and you", "short parts are not masked");
}

#[test]
fn masking_of_a_long_answer_yields_and_takes_linear_time() {
    let masker = Masker::new(["aaaaaaaaaaaaaaaa"].into_iter());
    for hostile in ["a".repeat(1 << 20), "\\".repeat(1 << 20), "%25".repeat(1 << 18), "&#x".repeat(1 << 18)] {
        let seen = body(&masker, &hostile);
        assert!(!seen.contains("aaaaaaaaaaaaaaaa"));
    }
}

/// Generates two secrets of equal length with different beginnings, made of `characters`, and the texts that a plugin
/// sends. The texts may contain any five bytes of the first secret, including its beginning.
fn pairs(characters: &str) -> impl Strategy<Value = (String, String, Vec<String>)> + use<> {
    let value = || prop::string::string_regex(&format!("[{characters}]{{24}}")).unwrap();
    let guesses = prop::collection::vec((0usize..24, 0usize..6, "[a-z\" %&+:/\\\\]{0,4}"), 0..4);
    (value(), value(), 12usize..=24, guesses).prop_filter_map("equal beginnings", |(first, second, length, guesses)| {
        let (first, second) = (first[..length].to_owned(), second[..length].to_owned());
        let guess = |(from, guessed, more): (usize, usize, String)| {
            let from = from.min(length - 1);
            format!("{}{more}", &first[from..(from + guessed).min(length)])
        };
        let guesses = guesses.into_iter().map(guess).collect();
        (!first[..6].eq_ignore_ascii_case(&second[..6])).then_some((first, second, guesses))
    })
}

/// Returns a server's answer that contains the plugin's texts and the secret in one encoding and one frame.
fn answer(form: Form, frame: u8, secret: &str, sent: &[String]) -> String {
    let (before, behind) = (sent.first().map_or("", String::as_str), sent.get(1).map_or("", String::as_str));
    let (secret, before, behind) = (form(secret), form(before), form(behind));
    match frame {
        0 => format!("{before} {secret} {behind}"),
        1 => format!("<p>{before}</p><i>{secret}</i>\n{behind}"),
        2 => format!("{{\"b\":\"{}\",\"s\":\"{}\",\"a\":[\"{}\",1]}}", json(&before), json(&secret), json(&behind)),
        _ => format!("{{\"{}\": 5}}", json(&format!("{before} {secret} {behind}"))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The masked answer does not depend on the value of the secret.
    #[test]
    fn masked_answers_are_equal_for_two_secrets_of_equal_length(
        // No separators: halves are masked separately, so their lengths are visible.
        (first, second, sent) in pairs("a-zA-Z0-9\"%&+/<>'\\\\ !-"), number in 0..FORMS.len(), frame in 0u8..4,
    ) {
        let (name, form) = FORMS[number];
        let seen = |secret: &str| body(&Masker::new([secret].into_iter()), &answer(form, frame, secret, &sent));
        prop_assert_eq!(seen(&first), seen(&second), "{} in frame {}", name, frame);
    }

    /// The masked answer does not depend on the value of the secret if the server truncates it.
    #[test]
    fn masked_truncated_quotations_are_equal_for_two_secrets((first, second, sent) in pairs("a-zA-Z0-9%&+/<>' !-"), less in 1usize..12) {
        let cut = 12.max(first.len().saturating_sub(less));
        let seen = |secret: &str| {
            // A separator is needed: two adjacent guesses can be the first eight bytes of a secret.
            let sent = sent.join("~");
            let quoted = format!("{}: {}... {sent}\n{sent}", sent.len(), &secret[..cut.min(secret.len())]);
            let masker = Masker::new([secret].into_iter());
            [text(&masker, &json(&quoted)), body(&masker, &quoted), body(&masker, &format!("[\"{}\"]", json(&quoted)))]
        };
        // A complete value is masked alone, a part is masked to the end of the line.
        prop_assume!(cut < first.len());
        prop_assert_eq!(seen(&first), seen(&second));
    }

    /// The output never contains the secret, and valid JSON stays valid.
    #[test]
    fn the_output_never_contains_the_secret(secret in "[a-zA-Z0-9!#$%&()+,./:;<=>?@_{|}~ üß-]{8,20}", before in "[a-z*]{0,3}", after in ".{0,3}") {
        let masker = Masker::new([secret.as_str()].into_iter());
        let bodies = [
            serde_json::json!({ "k": format!("{before}{secret}{after}"), &secret: 1 }).to_string(),
            format!("{before}{secret}{after}"),
            format!("<{}>", serde_json::Value::from(secret.as_str())),
        ];
        for answer in bodies {
            let json = serde_json::from_str::<serde_json::Value>(&answer).is_ok();
            let seen = body(&masker, &answer);
            prop_assert!(!seen.contains(&secret), "{seen}");
            prop_assert!(!json || serde_json::from_str::<serde_json::Value>(&seen).is_ok());
        }
    }
}
