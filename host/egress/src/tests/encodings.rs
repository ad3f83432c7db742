//! Bodies that are compressed, or in other character sets than UTF-8.

use super::*;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use std::io::Write;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn answer(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

async fn fetch(answer: Vec<u8>, reading: BodyReading) -> Result<Response, Error> {
    let poll = poll(&format!("http://127.0.0.1:{}/", canned(answer).await));
    poll.session.fetch(Request { reading, ..Request::get("") }).await
}

fn text(response: &Response) -> &str {
    std::str::from_utf8(&response.body).unwrap_or_else(|error| panic!("{error}: {:?}", response.body))
}

#[tokio::test]
async fn compressed_bodies_are_decoded() {
    let plain = "up and running ".repeat(5_000);
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    let mut bare = DeflateEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(plain.as_bytes()).unwrap();
    bare.write_all(plain.as_bytes()).unwrap();
    let (first, second) = plain.split_at(1_000);
    let members = [gzip(first.as_bytes()), gzip(second.as_bytes())].concat();
    let trailed = [gzip(plain.as_bytes()), b"\0\0\0rubbish".to_vec()].concat();
    for (encoding, body) in [
        ("gzip", gzip(plain.as_bytes())),
        ("X-GZIP", gzip(plain.as_bytes())),
        ("identity, gzip", gzip(plain.as_bytes())),
        ("gzip", members),
        ("gzip", trailed),
        ("deflate", zlib.finish().unwrap()),
        ("deflate", bare.finish().unwrap()),
        ("UTF-8", plain.clone().into_bytes()),
        ("none", plain.clone().into_bytes()),
        ("", plain.clone().into_bytes()),
        ("aws-chunked", plain.clone().into_bytes()),
    ] {
        let answer = answer(&format!("content-encoding: {encoding}\r\n"), &body);
        let response = fetch(answer.clone(), BodyReading::Whole).await.unwrap();
        assert_eq!(text(&response), plain, "{encoding:?}");
        assert!(response.is_complete);
        let length = response.headers.iter().find(|(name, _)| name == "content-length");
        assert_eq!(length.map(|(_, length)| length.as_str()), Some(&*plain.len().to_string()));
        let part = fetch(answer.clone(), BodyReading::First(6)).await.unwrap();
        assert_eq!((text(&part), part.is_complete), ("up and", false), "{encoding:?}");
        let until = fetch(answer, BodyReading::Until(vec![b"running".to_vec()])).await.unwrap();
        assert_eq!(text(&until), "up and running", "{encoding:?}");
    }
    let nothing = fetch(answer("content-encoding: gzip\r\n", b""), BodyReading::Whole).await.unwrap();
    assert!(nothing.body.is_empty() && nothing.is_complete);
}

#[tokio::test]
async fn compressed_bodies_that_cannot_be_decoded_are_refused() {
    let zipped = gzip(&[b'a'; 100_000]);
    for (encoding, body, expected) in [
        ("gzip", b"not compressed".to_vec(), "broken_encoding"),
        ("gzip", zipped[..zipped.len() / 2].to_vec(), "broken_encoding"),
        ("gzip", zipped[..zipped.len() - 4].to_vec(), "broken_encoding"),
        ("deflate", b"\xff\xff\xff\xff".to_vec(), "broken_encoding"),
        ("br", b"x".to_vec(), "encoded_body"),
        ("zstd", b"x".to_vec(), "encoded_body"),
        ("gzip, gzip", gzip(&zipped), "encoded_body"),
        // 4 MiB become 4 KiB.
        ("gzip", gzip(&vec![0; 4 << 20]), "body_too_large"),
    ] {
        let answer = answer(&format!("content-encoding: {encoding}\r\n"), &body);
        let error = fetch(answer.clone(), BodyReading::Whole).await.unwrap_err();
        assert_eq!(error.code(), expected, "{encoding} {error}");
        let response = fetch(answer, BodyReading::None).await.unwrap();
        assert_eq!(response.status, 200, "nothing is decoded that is not read");
    }
}

#[tokio::test]
async fn texts_in_other_character_sets_become_utf_8() {
    let latin = b"Z\xfcrich \x80".to_vec();
    let utf16 = |order: fn(u16) -> [u8; 2], text: &str| text.encode_utf16().flat_map(order).collect::<Vec<u8>>();
    let (little, big) = (u16::to_le_bytes, u16::to_be_bytes);
    let html = |meta: &str| [format!("<html><head>{meta}</head>").as_bytes(), b"Z\xfcrich"].concat();
    for (kind, body, expected) in [
        ("text/plain; charset=ISO-8859-1", latin.clone(), "Zürich €"),
        ("text/plain;charset=\"windows-1252\"", latin.clone(), "Zürich €"),
        ("TEXT/HTML; Charset = latin1", latin.clone(), "Zürich €"),
        ("application/octet-stream; charset=latin1", latin.clone(), "Zürich €"),
        ("application/json; charset=iso-8859-1", b"{\"a\":\"\xe9\"}".to_vec(), "{\"a\":\"é\"}"),
        ("text/plain; charset=koi8-r", b"\xed\xc9\xd2".to_vec(), "Мир"),
        ("text/plain; charset=koi8-r", "Мир".into(), "Мир"),
        ("text/html; charset=utf-16", "<p>Zürich ist gestört".into(), "<p>Zürich ist gestört"),
        ("application/json; charset=utf-16be", "{\"a\":\"é\"}".into(), "{\"a\":\"é\"}"),
        ("text/plain; charset=utf-16le", utf16(little, "正常"), "正常"),
        ("text/plain; charset=shift_jis", b"\x93\xfa\x96\x7b".to_vec(), "日本"),
        ("text/plain; charset=utf-16", utf16(little, "Zürich"), "Zürich"),
        ("text/plain; charset=utf-16be", utf16(big, "Zürich"), "Zürich"),
        ("text/plain", [b"\xff\xfe".to_vec(), utf16(little, "Zürich")].concat(), "Zürich"),
        ("application/json", [b"\xfe\xff".to_vec(), utf16(big, "{\"a\":1}")].concat(), "{\"a\":1}"),
        ("application/json", utf16(little, "{\"a\":1}"), "{\"a\":1}"),
        ("application/json", utf16(big, "[1]"), "[1]"),
        ("text/plain", utf16(little, "{}"), "{}"),
        ("application/json", b"\xef\xbb\xbf{}".to_vec(), "{}"),
        ("text/html; charset=latin1", b"\xef\xbb\xbfZ\xc3\xbcrich".to_vec(), "Zürich"),
        ("text/plain; charset=nonsense", "Zürich".into(), "Zürich"),
        ("text/plain; charset=utf-8", "Zürich".into(), "Zürich"),
        ("text/plain", "Zürich".into(), "Zürich"),
        ("text/plain", b"Z\xfcrich".to_vec(), "Zürich"),
        ("text/html", html("<meta charset=iso-8859-1>"), "<html><head><meta charset=iso-8859-1></head>Zürich"),
        (
            "text/html",
            html("<META http-equiv=a content='text/html; charset=latin1'>"),
            "<html><head><META http-equiv=a content='text/html; charset=latin1'></head>Zürich",
        ),
        (
            "application/rss+xml",
            b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xfc</a>".to_vec(),
            "<?xml version='1.0' encoding='ISO-8859-1'?><a>ü</a>",
        ),
        ("text/plain", b"ab".to_vec(), "ab"),
        ("application/json", Vec::new(), ""),
    ] {
        let answer = answer(&format!("content-type: {kind}\r\n"), &body);
        let response = fetch(answer.clone(), BodyReading::Whole).await.unwrap();
        assert_eq!((text(&response), response.is_complete), (expected, true), "{kind}");
        let length = response.headers.iter().find(|(name, _)| name == "content-length");
        assert_eq!(length.map(|(_, length)| length.as_str()), Some(&*expected.len().to_string()), "{kind}");
        let until = fetch(answer, BodyReading::Until(vec!["rich".into()])).await.unwrap();
        assert!(expected.starts_with(text(&until)), "{kind}");
    }
    for (headers, body) in [
        ("content-type: image/png\r\n", b"\xef\xbb\xbf\xff\0".to_vec()),
        ("content-type: application/json\r\n", b"{\"a\":\"\xe9\"}".to_vec()),
        ("", b"\x89PNG\xff".to_vec()),
    ] {
        let response = fetch(answer(headers, &body), BodyReading::Whole).await.unwrap();
        assert_eq!(response.body, body, "it is not a text in another character set");
    }
}

#[tokio::test]
async fn secrets_are_masked_in_what_was_decoded() {
    let secret = "sesame-öffne-dich";
    let latin = encoding_rs::WINDOWS_1252.encode(secret).0.into_owned();
    let utf16: Vec<u8> = secret.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (headers, body) in [
        ("content-encoding: gzip\r\n", gzip(secret.as_bytes())),
        ("content-type: text/plain; charset=latin1\r\n", latin.clone()),
        ("content-type: text/plain\r\n", latin.clone()),
        ("content-type: text/plain; charset=utf-16le\r\n", utf16),
        ("content-type: text/plain; charset=latin1\r\ncontent-encoding: deflate\r\n", {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(&latin).unwrap();
            encoder.finish().unwrap()
        }),
    ] {
        for reading in [BodyReading::Whole, BodyReading::First(12), BodyReading::Until(vec![b"dich".to_vec()])] {
            let url = format!("http://127.0.0.1:{}/", canned(answer(headers, &body)).await);
            let grant = grant(&url, Tls::system().unwrap(), secrets(&[("key", secret)]));
            let poll = poll_with(Egress::new(Config::default()), grant, LIMITS);
            let response = poll.session.fetch(Request { reading, ..Request::get("") }).await.unwrap();
            assert!(text(&response).chars().all(|c| c == '*'), "{headers}: {}", text(&response));
        }
    }
}
