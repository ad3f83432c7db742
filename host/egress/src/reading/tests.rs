use super::*;
use crate::tests::{grant, secrets};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use proptest::prelude::*;

/// Secrets of equal length without a common text of 2 bytes. The forms of the last one are longer.
const SECRETS: [&str; 3] = ["q8Zk3mWx0pTy7LnA", "vB5rHj1sUe6iOc2K", "\"F&D\\G<4\"9/%#@>?"];

/// A part of a body.
#[derive(Clone, Debug)]
enum Piece {
    Text(&'static str),
    /// Many bytes.
    Filler(usize),
    /// The secret in this encoding.
    Secret(usize),
}

fn written(pieces: &[Piece], secret: &str) -> Vec<u8> {
    let write = |piece: &Piece| match piece {
        Piece::Text(text) => (*text).to_owned(),
        Piece::Filler(length) => ".".repeat(*length),
        Piece::Secret(0) => secret.to_owned(),
        Piece::Secret(1) => format!("<{}>", STANDARD.encode(secret)),
        Piece::Secret(2) => format!("<{}>", HEXLOWER.encode(secret.as_bytes())),
        Piece::Secret(3) => secret.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        Piece::Secret(4) => serde_json::to_string(secret).unwrap(),
        Piece::Secret(_) => url::form_urlencoded::byte_serialize(secret.as_bytes()).collect(),
    };
    pieces.iter().map(write).collect::<String>().into_bytes()
}

/// Reads a body that arrives in pieces of this length. Returns what the plugin sees, whether it is all, and the number
/// of bytes that were read.
async fn seen(body: &[u8], step: usize, reading: &BodyReading, secret: Option<&str>) -> (String, bool, usize) {
    let values = secret.map(|secret| ("token", secret));
    let grant = grant("http://127.0.0.1:1/", crate::Tls::system().unwrap(), secrets(values.as_slice()));
    let visible = Visible::of(reading, Maskers::new(&grant, &[]));
    let (mut read, mut searched, compared) = (0, 0, AtomicUsize::new(0));
    while read < body.len() && !visible.suffices(&body[..read], &mut searched, &compared).await.unwrap() {
        read = body.len().min(read + step);
    }
    let (seen, is_complete) = visible.body(body[..read].to_vec(), read == body.len()).await;
    (String::from_utf8(seen).unwrap(), is_complete, read)
}

#[tokio::test]
async fn a_body_ends_where_the_plugin_wants_and_never_inside_a_secret() {
    let until = |texts: &[&str]| BodyReading::Until(texts.iter().map(|text| text.as_bytes().to_vec()).collect());
    let (secret, stars) = (SECRETS[0], "*".repeat(16));
    let long = |text: &str| format!("{text}{}", ".".repeat(2_000));
    for (body, reading, expected) in [
        ("a body".to_owned(), BodyReading::First(3), ("a b".to_owned(), false)),
        ("a body".to_owned(), BodyReading::First(6), ("a body".to_owned(), true)),
        ("a body".to_owned(), BodyReading::First(7), ("a body".to_owned(), true)),
        ("a body".to_owned(), BodyReading::None, (String::new(), false)),
        (String::new(), BodyReading::None, (String::new(), true)),
        ("data: 1\n\ndata: 2\n\n".to_owned(), until(&["\n\n"]), ("data: 1\n\n".to_owned(), false)),
        ("data: 1\n\n".to_owned(), until(&["\n\n"]), ("data: 1\n\n".to_owned(), true)),
        ("first, second".to_owned(), until(&["second", "first"]), ("first".to_owned(), false)),
        ("none".to_owned(), until(&["text"]), ("none".to_owned(), true)),
        // The end lies inside the secret, which is replaced as a whole.
        (long(&format!("{secret} is it")), BodyReading::First(4), ("****".to_owned(), false)),
        (long(&format!("a {secret} is it")), BodyReading::First(7), ("a *****".to_owned(), false)),
        // The text occurs inside the secret, then behind it.
        (long(&format!("{secret}, then Zk3")), until(&["Zk3"]), (format!("{stars}, then Zk3"), false)),
        (long(&format!("{secret} END")), until(&["A E", "D"]), (format!("{stars} END"), false)),
    ] {
        for step in [1, 7, 4_000] {
            let (text, is_complete, _) = seen(body.as_bytes(), step, &reading, Some(secret)).await;
            assert_eq!((text, is_complete), expected, "{reading:?} of {body:.40?}");
        }
    }
}

#[tokio::test]
async fn no_more_is_read_than_needed() {
    let body = format!("a text{}", ".".repeat(5_000));
    for (reading, own) in [(BodyReading::First(6), 6), (BodyReading::Until(vec![b"text".to_vec()]), 6)] {
        assert_eq!(seen(body.as_bytes(), 1, &reading, None).await.2, own, "{reading:?}");
        assert_eq!(seen(body.as_bytes(), 1, &reading, Some(SECRETS[0])).await.2, own + MARGIN, "{reading:?}");
    }
}

#[tokio::test]
async fn texts_inside_of_many_secrets_have_a_bound() {
    let grant = grant("http://127.0.0.1:1/", crate::Tls::system().unwrap(), secrets(&[("token", SECRETS[0])]));
    let visible = Visible::of(&BodyReading::Until(vec![b"Zk".to_vec()]), Maskers::new(&grant, &[]));
    let (mut body, mut searched, total) = (vec![b'.'; 1 << 20], 0, AtomicUsize::new(0));
    let mut compared = 0;
    let error = loop {
        body.extend_from_slice(format!(" {} {}", SECRETS[0], ".".repeat(MARGIN)).as_bytes());
        match visible.suffices(&body, &mut searched, &total).await {
            Ok(suffices) => assert!(!suffices),
            Err(error) => break error,
        }
        compared += 1;
    };
    assert!(error.code() == "too_much_searched_in_poll" && (50..64).contains(&compared), "{error} after {compared}");
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        prop::sample::select(&["END", "\n", ", ", "{\"a\":\"", "\"}"][..]).prop_map(Piece::Text),
        (1usize..1_500).prop_map(Piece::Filler),
        (0usize..6).prop_map(Piece::Secret),
    ]
}

fn reading() -> impl Strategy<Value = BodyReading> {
    // Texts that occur in one of the secrets only.
    let text = prop::sample::select(
        &["END", "\n", ".", "q", "8Zk", "nA", "nA,", "2K", "Hj1sUe6i", ">", "%7", "\\", "&D", "%22"][..],
    );
    prop_oneof![
        (1usize..4_000).prop_map(BodyReading::First),
        prop::collection::vec(text.prop_map(|text| text.as_bytes().to_vec()), 1..4).prop_map(BodyReading::Until),
    ]
}

proptest! {
    #[test]
    fn what_a_plugin_sees_does_not_depend_on_a_secret(
        pieces in prop::collection::vec(piece(), 1..12),
        reading in reading(),
        step in 1usize..3_000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let [first, second, third] = SECRETS.map(|secret| {
            let body = written(&pieces, secret);
            let (text, is_complete, _) = runtime.block_on(seen(&body, step, &reading, Some(secret)));
            prop_assert!(!text.contains(secret), "{text}");
            Ok((text, is_complete))
        });
        let first = first?;
        prop_assert_eq!(&first, &second?);
        prop_assert_eq!(first, third?);
    }
}
