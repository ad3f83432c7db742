//! Published vectors, and requests that are refused. The keys are those of RFC 7515 (appendices A.2 and A.3) and of RFC
//! 8037 (appendix A.1).

use super::*;
use crate::references::References;
use crate::secrets::{SecretRules, Secrets, Values};
use SecretEncoding::{Base32, Base64, Hex, Utf8, Utf16Le};
use SignaturePart::{Body, Bytes, Secret};
use secrecy::SecretString;
use std::collections::BTreeSet;

const RSA: &str = include_str!("keys/rsa-pkcs8.pem");
const RSA_PKCS1: &str = include_str!("keys/rsa-pkcs1.pem");
const P256: &str = include_str!("keys/p256-pkcs8.pem");
const P256_SEC1: &str = include_str!("keys/p256-sec1.pem");
const ED25519: &str = include_str!("keys/ed25519-pkcs8.pem");

fn bytes(text: &str) -> SignaturePart {
    Bytes(text.as_bytes().to_vec())
}

fn earlier(name: &str) -> SignaturePart {
    SignaturePart::Signature(name.to_owned())
}

fn secret(name: &str, encoding: SecretEncoding) -> SignaturePart {
    Secret(name.to_owned(), encoding)
}

fn signature(algorithm: &str, key: Vec<SignaturePart>, input: Vec<SignaturePart>) -> Signature {
    let (name, algorithm) = ("s".to_owned(), algorithm.to_owned());
    Signature { name, algorithm, key, input, encoding: SignatureEncoding::Hex, iterations: None }
}

/// Computes signatures with the given secrets, for a request with a body, at a time in seconds.
fn computed(
    values: &[(&str, &str)],
    signatures: &[Signature],
    (body, now): (Option<&str>, i64),
) -> Result<Signed, Error> {
    let is_key = |(_, value): &&(&str, &str)| value.starts_with("-----BEGIN");
    let private_keys: BTreeSet<String> = values.iter().filter(is_key).map(|(name, _)| (*name).to_owned()).collect();
    let values = values.iter().map(|(name, value)| ((*name).to_owned(), SecretString::from(*value))).collect();
    let operators = Secrets::with_rules(values, SecretRules { private_keys, ..SecretRules::default() }).unwrap();
    let (captured, references) = (Values::new(), References::default());
    let known = AvailableSecrets { operators: &operators, captured: &captured, references: &references };
    let signing = Signing { work: &AtomicU64::new(0), now, is_replayed: false };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(sign(&known, signatures, body.map(str::as_bytes), signing))
}

fn result(values: &[(&str, &str)], signature: Signature) -> String {
    computed(values, &[signature], (Some(""), 0)).unwrap().text("s").unwrap().to_owned()
}

#[test]
fn digests_and_macs_have_the_published_results() {
    // RFC 1321, FIPS 180-4, RFC 2202 and RFC 4231 (test case 2).
    for (algorithm, key, input, expected) in [
        ("md5", "", "abc", "900150983cd24fb0d6963f7d28e17f72"),
        ("sha1", "", "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("sha256", "", "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            "sha512",
            "",
            "abc",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e\
             2a9ac94fa54ca49f",
        ),
        ("hmac-sha1", "Jefe", "what do ya want for nothing?", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
        (
            "hmac-sha256",
            "Jefe",
            "what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (
            "hmac-sha512",
            "Jefe",
            "what do ya want for nothing?",
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b\
             636e070a38bce737",
        ),
    ] {
        let key = if key.is_empty() { Vec::new() } else { vec![bytes(key)] };
        assert_eq!(result(&[], signature(algorithm, key, vec![bytes(input)])), expected, "{algorithm}");
    }
    // RFC 7914, section 11.
    for (password, salt, iterations, expected) in [
        ("passwd", "salt", 1, "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc"),
        ("Password", "NaCl", 80_000, "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56"),
    ] {
        let derived = signature("pbkdf2-hmac-sha256", vec![bytes(password)], vec![bytes(salt)]);
        assert_eq!(result(&[], Signature { iterations: Some(iterations), ..derived }), expected);
    }
}

#[test]
fn web_tokens_have_the_published_signatures() {
    const CLAIMS: &str =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const SHARED: &str = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    const RS256: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGb\
        ds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383Lc\
        OLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0i\
        gcN_IoypGlUPQGe77Rw";
    const EDDSA: &str = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    let token = |value: &str, algorithm: &str, part: SignaturePart, input: String| {
        let signature = signature(algorithm, vec![part], vec![bytes(&input)]);
        result(&[("key", value)], Signature { encoding: SignatureEncoding::Base64Url, ..signature })
    };
    let shared = token(
        SHARED,
        "hmac-sha256",
        secret("key", Base64),
        format!("eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{CLAIMS}"),
    );
    assert_eq!(shared, "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
    for key in [RSA, RSA_PKCS1] {
        let signed = token(key, "rsa-sha256", secret("key", Utf8), format!("eyJhbGciOiJSUzI1NiJ9.{CLAIMS}"));
        assert_eq!(signed, RS256);
    }
    let signed = token(
        ED25519,
        "ed25519",
        secret("key", Utf8),
        "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc".to_owned(),
    );
    assert_eq!(signed, EDDSA);
    // A signature with ECDSA contains a random number: it is verified.
    let input = format!("eyJhbGciOiJFUzI1NiJ9.{CLAIMS}");
    let point = ["f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"];
    let point: Vec<u8> =
        [4].into_iter().chain(point.iter().flat_map(|half| URL_SAFE_NO_PAD.decode(half).unwrap())).collect();
    let public = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, point);
    for key in [P256, P256_SEC1, P256, P256_SEC1, P256, P256_SEC1, P256, P256_SEC1] {
        let signed =
            URL_SAFE_NO_PAD.decode(token(key, "ecdsa-p256-sha256", secret("key", Utf8), input.clone())).unwrap();
        assert_eq!(signed.len(), 64);
        public.verify(input.as_bytes(), &signed).expect("the signature is valid");
    }
}

#[test]
fn one_time_passwords_have_the_published_values() {
    // RFC 6238, appendix B, whose passwords have two digits more.
    for (now, expected) in [
        (59, "287082"),
        (1_111_111_109, "081804"),
        (1_111_111_111, "050471"),
        (1_234_567_890, "005924"),
        (2_000_000_000, "279037"),
        (20_000_000_000, "353130"),
    ] {
        for written in ["GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", "gezd gnbv gy3t qojq gezd-gnbv-gy3t-qojq===="] {
            let password = signature("totp-sha1", vec![secret("seed", Base32)], Vec::new());
            let signed = computed(&[("seed", written)], &[password], (Some(""), now)).unwrap();
            assert_eq!(signed.text("s").unwrap(), expected, "{now}");
        }
    }
}

/// A request as version 4 of the signatures of AWS wants it. The plugin knows all but the secret key.
pub(crate) fn aws(secret_key: &str, amz_date: &str, request: &str, scope: [&str; 2]) -> Vec<Signature> {
    let [region, service] = scope;
    let (date, _) = amz_date.split_once('T').unwrap();
    let raw = |name: &str, key: Vec<SignaturePart>, input: &str| Signature {
        name: name.to_owned(),
        encoding: SignatureEncoding::Raw,
        ..signature("hmac-sha256", key, vec![bytes(input)])
    };
    let named = |name: &str, signature: Signature| Signature { name: name.to_owned(), ..signature };
    let to_sign = format!("AWS4-HMAC-SHA256\n{amz_date}\n{date}/{region}/{service}/aws4_request\n");
    vec![
        named("body", signature("sha256", Vec::new(), vec![Body])),
        named("request", signature("sha256", Vec::new(), vec![bytes(request), earlier("body")])),
        raw("date", vec![bytes("AWS4"), secret(secret_key, Utf8)], date),
        raw("region", vec![earlier("date")], region),
        raw("service", vec![earlier("region")], service),
        raw("key", vec![earlier("service")], "aws4_request"),
        signature("hmac-sha256", vec![earlier("key")], vec![bytes(&to_sign), earlier("request")]),
    ]
}

#[test]
fn requests_to_aws_have_the_published_signatures() {
    // get-vanilla, post-vanilla and post-x-www-form-urlencoded of the test suite of AWS.
    let keys = [("key", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")];
    let date = "20150830T123600Z";
    let common = format!("host:example.amazonaws.com\nx-amz-date:{date}\n\n");
    for (request, body, hash, expected) in [
        (
            format!("GET\n/\n\n{common}host;x-amz-date\n"),
            "",
            "bb579772317eb040ac9ed261061d46c1f17a8133879d6129b6e1c25292927e63",
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        (
            format!("POST\n/\n\n{common}host;x-amz-date\n"),
            "",
            "553f88c9e4d10fc9e109e2aeb65f030801b70c2f6468faca261d401ae622fc87",
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        ),
        (
            format!(
                "POST\n/\n\ncontent-type:application/x-www-form-urlencoded\n{common}content-type;host;x-amz-date\n"
            ),
            "Param1=value1",
            "42a5e5bb34198acb3e84da4f085bb7927f2bc277ca766e6d19c73c2154021281",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ] {
        let signed = computed(&keys, &aws("key", date, &request, ["us-east-1", "service"]), (Some(body), 0)).unwrap();
        assert_eq!(signed.text("request").unwrap(), hash, "{request}");
        assert_eq!(signed.text("s").unwrap(), expected, "{request}");
        assert!(signed.text("key").is_err(), "raw bytes are for other signatures only");
    }
}

#[test]
fn secrets_are_decoded_as_the_plugin_says() {
    for (value, encoding, expected) in [
        ("pässword", Utf8, "pässword".as_bytes().to_vec()),
        ("ab\u{1f600}cdefgh", Utf16Le, "ab\u{1f600}cdefgh".encode_utf16().flat_map(u16::to_le_bytes).collect()),
        ("3q2+776t/v8=", Base64, vec![0xde, 0xad, 0xbe, 0xef, 0xbe, 0xad, 0xfe, 0xff]),
        ("3q2-776t_v8", Base64, vec![0xde, 0xad, 0xbe, 0xef, 0xbe, 0xad, 0xfe, 0xff]),
        ("DEADbeef00", Hex, vec![0xde, 0xad, 0xbe, 0xef, 0]),
    ] {
        let signed = result(&[("s", value)], signature("sha256", Vec::new(), vec![secret("s", encoding)]));
        assert_eq!(signed, HEXLOWER.encode(digest::digest(&digest::SHA256, &expected).as_ref()), "{value}");
    }
    for (value, encoding, what) in [
        ("no hex digits", Hex, "hex"),
        ("abcdefghi", Hex, "hex"),
        ("not/base64!", Base64, "base64"),
        ("18901890", Base32, "base32"),
    ] {
        let refused = signature("sha256", Vec::new(), vec![secret("s", encoding)]);
        let error = computed(&[("s", value)], &[refused], (Some(""), 0)).err().unwrap().to_string();
        assert!(error.contains(what) && !error.contains(value), "{error}");
    }
}

#[test]
fn odd_signatures_are_refused_in_one_sentence() {
    let plain = || signature("sha256", Vec::new(), vec![bytes("x")]);
    let named = |name: &str| Signature { name: name.to_owned(), ..plain() };
    let keyed = |algorithm: &str, key| signature(algorithm, vec![key], vec![bytes("x")]);
    let values = [("token", "hunter2hunter2"), ("rsa", RSA), ("ec", P256)];
    for (signatures, body, expected) in [
        (vec![signature("sha256", Vec::new(), vec![earlier("s")])], Some(""), "which is not before it"),
        (vec![signature("sha256", Vec::new(), vec![Body])], None, "sign one or the other"),
        (vec![signature("sha256", Vec::new(), vec![secret("missing", Utf8)])], Some(""), "\"missing\""),
        (vec![signature("sha256", Vec::new(), vec![bytes("x"); MAX_PARTS + 1])], Some(""), "more than 64 parts"),
        (vec![signature("sha256", Vec::new(), vec![secret("rsa", Utf8)])], Some(""), "only signs"),
        (vec![keyed("hmac-sha256", secret("rsa", Utf8))], Some(""), "only signs"),
        (vec![keyed("rsa-sha256", secret("token", Utf8))], Some(""), "it is not a private key in PEM"),
        (vec![keyed("rsa-sha256", secret("ec", Utf8))], Some(""), "for another algorithm"),
        (vec![keyed("rsa-sha256", secret("rsa", Base64))], Some(""), "one secret"),
        (vec![keyed("rsa-sha256", bytes(RSA))], Some(""), "one secret"),
        (vec![keyed("sha256", bytes("k"))], Some(""), "no key"),
        (vec![keyed("totp-sha1", bytes("k"))], Some(""), "no input"),
        (vec![keyed("crc32", bytes("k"))], Some(""), "use one of md5, sha1"),
        (vec![keyed("pbkdf2-hmac-sha256", bytes("k"))], Some(""), "iterations"),
        (vec![Signature { iterations: Some(0), ..keyed("pbkdf2-hmac-sha256", bytes("k")) }], Some(""), "iterations"),
        (
            vec![Signature { iterations: Some(u32::MAX), ..keyed("pbkdf2-hmac-sha256", bytes("k")) }],
            Some(""),
            "iterations",
        ),
        (vec![Signature { iterations: Some(1), ..plain() }], Some(""), "iterations"),
        (vec![keyed("hmac-sha256", Bytes(vec![0; MAX_KEY_BYTES + 1]))], Some(""), "longer than"),
        (vec![signature("sha256", Vec::new(), vec![Bytes(vec![0; MAX_INPUT_BYTES + 1])])], Some(""), "longer than"),
        (vec![named(""), plain()], Some(""), "its name"),
        (vec![named("a b")], Some(""), "its name"),
        (vec![named(&"x".repeat(65))], Some(""), "its name"),
        (vec![plain(), plain()], Some(""), "two of this name"),
        ((0..17).map(|number| named(&number.to_string())).collect(), Some(""), "more than 16"),
    ] {
        let error = computed(&values, &signatures, (body, 0)).err().expect(expected);
        assert!(error.to_string().contains(expected), "{error} should say {expected}");
        assert_eq!(error.class(), crate::ErrorClass::InvalidArgument, "{error}");
    }
}

#[test]
fn the_work_of_a_call_is_limited() {
    let (captured, references) = (Values::new(), References::default());
    let operators = Secrets::default();
    let known = AvailableSecrets { operators: &operators, captured: &captured, references: &references };
    let work = AtomicU64::new(0);
    let signing = Signing { work: &work, now: 0, is_replayed: false };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let long = [signature("sha256", Vec::new(), vec![Bytes(vec![0; MAX_INPUT_BYTES])])];
    let mut fitting = 0;
    let error = loop {
        match runtime.block_on(sign(&known, &long, Some(&[]), signing)) {
            Ok(_) => fitting += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((fitting, error.code()), (15, "too_much_signed_in_poll"));
}
