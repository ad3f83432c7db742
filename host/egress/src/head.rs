//! Reads heads of answers that the HTTP library refuses.
//!
//! Many servers send heads that do not conform to RFC 9112, and other clients read them: folded lines, blanks before
//! colons, warnings of a program between the headers, control characters in values. Such a head is rewritten before
//! the library reads it. Header lines that the library cannot represent are kept apart, and so are those that exceed
//! the number of lines that it reads.

use memchr::{memchr, memmem};
use std::borrow::Cow;

/// Maximum number of header lines that the HTTP library reads. It has room for this number on its stack, and allocates
/// 16 KB for each answer if more are allowed.
const MOST_LINES: usize = 100;
/// Maximum number of carriage returns in a line break. Programs that write texts as binary files double them.
const MOST_RETURNS: usize = 4;
/// The beginning of each head.
const PROTOCOL: &[u8] = b"HTTP/";
/// The header that says that a body has chunks.
const CHUNKED: &[u8] = b"transfer-encoding";
/// The headers that decide where an answer ends and whether its connection remains open. The HTTP library needs them.
const FRAMING: [&str; 4] = ["connection", "content-length", "transfer-encoding", "upgrade"];

/// Why a head cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("it begins with {0}")]
    Beginning(String),
    #[error("the line {0:?} of its head cannot be read")]
    Line(String),
}

/// A head that was rewritten.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rewritten {
    /// The head for the HTTP library.
    pub head: Vec<u8>,
    /// The header lines that are not in it: names in lower case, and values.
    pub apart: Vec<(String, String)>,
    /// The reason phrase, if it is not ASCII. The library leaves out such phrases.
    pub reason: Option<String>,
    /// Whether another head follows, because this one is informational (1xx).
    pub is_informational: bool,
}

/// Returns the end of the head at the beginning of these bytes. `None` if it is not complete. No head ends before
/// `searched`, which is updated.
pub(crate) fn end(bytes: &[u8], searched: &mut usize) -> Option<usize> {
    // The empty lines before a head do not end it.
    let begin = begin(bytes);
    let mut at = (*searched).max(begin);
    while let Some(found) = memchr(b'\n', &bytes[at..]) {
        let next = at + found + 1;
        let returns = bytes[next..].iter().take(MOST_RETURNS).take_while(|byte| **byte == b'\r').count();
        match bytes.get(next + returns) {
            Some(b'\n') => return Some(next + returns + 1),
            None => {
                *searched = next - 1;
                return None;
            }
            Some(_) => at = next,
        }
    }
    *searched = bytes.len();
    None
}

/// Returns the place of the first byte that is not of an empty line.
fn begin(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len())
}

/// Checks that these bytes can be the beginning of an answer of HTTP.
pub(crate) fn check_beginning(bytes: &[u8]) -> Result<(), Unreadable> {
    let bytes = &bytes[begin(bytes)..];
    let length = bytes.len().min(PROTOCOL.len());
    if bytes[..length].eq_ignore_ascii_case(&PROTOCOL[..length]) {
        return Ok(());
    }
    Err(Unreadable::Beginning(match bytes {
        // The types of its records, and the major version (RFC 8446, section 5.1).
        [20..=23, 3, ..] => "a message of TLS".to_owned(),
        _ => format!("{:?}", text(lines(bytes).next().unwrap_or_default())),
    }))
}

/// Returns whether the HTTP library reads a final head as it is.
pub(crate) fn is_plain(head: &[u8]) -> bool {
    let mut lines = lines(head);
    let is_old = head.starts_with(b"HTTP/1.0");
    if memmem::find(head, b"\r\r").is_some() {
        return false;
    }
    let is_status = |line: &[u8]| match line.strip_prefix(b"HTTP/1.") {
        Some([b'0' | b'1', b' ', b'2'..=b'9', b'0'..=b'9', b'0'..=b'9', rest @ ..]) => {
            matches!(rest, [] | [b' ', ..]) && rest.iter().all(|&byte| is_text(byte) && byte.is_ascii())
        }
        _ => false,
    };
    let mut lengths = 0;
    let mut is_header = |line: &[u8]| match line.iter().position(|&byte| !is_token(byte)) {
        Some(colon @ 1..) if line[colon] == b':' => {
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            lengths += usize::from(is_length(name));
            let is_odd = is_old && name.eq_ignore_ascii_case(CHUNKED)
                || is_length(name) && (length(value).is_none() || !value.trim_ascii().iter().all(u8::is_ascii_digit));
            value.iter().all(|&byte| is_text(byte)) && lengths < 2 && !is_odd
        }
        _ => false,
    };
    lines.next().is_some_and(is_status) && {
        let mut count = 0;
        lines.take_while(|line| !line.is_empty()).all(|line| {
            count += 1;
            count <= MOST_LINES && is_header(line)
        })
    }
}

/// Rewrites a head so that the HTTP library reads it.
pub(crate) fn rewritten(head: &[u8]) -> Result<Rewritten, Unreadable> {
    let mut lines = lines(&head[begin(head)..]).take_while(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let (version, status, reason) = status_line(first).ok_or_else(|| Unreadable::Line(text(first)))?;
    let mut written = b"HTTP/1.".to_vec();
    let place = written.len();
    written.extend(format!("{version} {status}").into_bytes());
    let odd_reason = (!reason.is_ascii()).then(|| text(reason));
    if !reason.is_empty() && odd_reason.is_none() {
        written.push(b' ');
        written.extend(reason.iter().map(|&byte| if is_text(byte) { byte } else { b' ' }));
    }
    written.extend(b"\r\n");
    let mut unfolded: Vec<Cow<'_, [u8]>> = Vec::new();
    for line in lines {
        match unfolded.last_mut() {
            // A line that begins with a blank continues the one before (RFC 9112, section 5.2).
            Some(last) if matches!(line, [b' ' | b'\t', ..]) => {
                let last = last.to_mut();
                last.push(b' ');
                last.extend(line.trim_ascii());
            }
            _ => unfolded.push(Cow::Borrowed(line)),
        }
    }
    let headers = unfolded.iter().filter_map(|line| {
        // Lines without a name or a colon are not headers: servers print warnings among them.
        let colon = memchr(b':', line)?;
        let name = line[..colon].trim_ascii();
        (!name.is_empty()).then(|| (line, name, line[colon + 1..].trim_ascii()))
    });
    let is_chunked = headers.clone().any(|(_, name, _)| name.eq_ignore_ascii_case(CHUNKED));
    if version == 0 && is_chunked {
        // The library reads chunks of the newer version only. That of the older one ends with its connection.
        written[place] = b'1';
        let keeps = |name: &[u8], value: &[u8]| name.eq_ignore_ascii_case(b"connection") && !value.is_empty();
        if !headers.clone().any(|(_, name, value)| keeps(name, value)) {
            written.extend(b"Connection: close\r\n");
        }
    }
    let (mut apart, mut written_lines, mut known) = (Vec::new(), 0, None);
    for (line, name, value) in headers {
        let frames = FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing.as_bytes()));
        let mut value = Cow::Borrowed(value);
        if is_length(name) {
            match length(&value).filter(|length| known.is_none_or(|known| known == *length)) {
                // Where both are sent, the length does not count (RFC 9112, section 6.3).
                _ if is_chunked => continue,
                // It cannot be that long: the connection ends the body.
                None if value.len() > 19 && value.iter().all(u8::is_ascii_digit) => continue,
                None => return Err(Unreadable::Line(text(line))),
                Some(_) if known.is_some() => continue,
                Some(length) => (known, value) = (Some(length), length.to_string().into_bytes().into()),
            }
        }
        let is_readable = name.iter().all(|&byte| is_token(byte)) && value.iter().all(|&byte| is_text(byte));
        // The places that remain are for the lines without which an answer has no end.
        let has_place = written_lines < MOST_LINES - FRAMING.len();
        if frames || (is_readable && has_place) {
            written.extend(name);
            written.extend(b": ");
            written.extend(value.iter().map(|&byte| if is_text(byte) { byte } else { b' ' }));
            written.extend(b"\r\n");
            written_lines += usize::from(!frames);
        } else {
            apart.push((text(name).to_lowercase(), text(&value)));
        }
    }
    written.extend(b"\r\n");
    Ok(Rewritten {
        head: written,
        apart,
        reason: odd_reason,
        is_informational: (100..200).contains(&status) && status != 101,
    })
}

/// Parses a status line: the minor version, the status and the reason phrase. Blanks may be missing or repeated.
fn status_line(line: &[u8]) -> Option<(u8, u16, &[u8])> {
    let (protocol, rest) = line.split_at_checked(PROTOCOL.len())?;
    if !protocol.eq_ignore_ascii_case(PROTOCOL) {
        return None;
    }
    let blank = rest.iter().position(|byte| matches!(byte, b' ' | b'\t'))?;
    let (version, rest) = rest.split_at(blank);
    // A server of HTTP/2 or later that answers in this form means the newest version of this form.
    let minor = match version {
        b"1.0" | b"0.9" => 0,
        [b'1'..=b'3'] | [b'1'..=b'3', b'.', b'0'..=b'9'] => 1,
        _ => return None,
    };
    let rest = rest.trim_ascii_start();
    let (digits, reason) = rest.split_at_checked(3)?;
    let status: u16 = str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit))?.parse().ok()?;
    let is_over = reason.first().is_none_or(|byte| !byte.is_ascii_digit());
    (is_over && status >= 100).then(|| (minor, status, reason.trim_ascii()))
}

/// Returns the lines of a head without their breaks.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = head;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let stop = memchr(b'\n', rest);
        let (line, left) = stop.map_or((rest, &rest[rest.len()..]), |stop| (&rest[..stop], &rest[stop + 1..]));
        rest = left;
        let returns = line.iter().rev().take(MOST_RETURNS).take_while(|byte| **byte == b'\r').count();
        Some(&line[..line.len() - returns])
    })
}

fn is_length(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-length")
}

/// Parses the value of a content-length. A list of equal numbers is one of them (RFC 9112, section 6.3). Like in other
/// clients, what is behind the digits of a number does not count.
fn length(value: &[u8]) -> Option<u64> {
    let mut numbers = str::from_utf8(value).ok()?.split(',').map(|number| {
        let number = number.trim();
        let number = number.strip_prefix('+').unwrap_or(number);
        let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        number[..digits].parse().ok()
    });
    let first = numbers.next()??;
    numbers.all(|number| number == Some(first)).then_some(first)
}

/// Returns whether a byte may be in the name of a header (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns whether a byte may be in the value of a header or in a reason phrase.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(head: &str) -> Rewritten {
        rewritten(head.as_bytes()).unwrap_or_else(|error| panic!("{head:?}: {error}"))
    }

    #[test]
    fn heads_of_real_servers_are_written_as_the_library_reads_them() {
        for (head, expected, apart) in [
            ("HTTP/1.1 200 OK\nA: b\n\n", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", &[][..]),
            ("\r\n\nHTTP/1.0 404\r\n\r\n", "HTTP/1.0 404\r\n\r\n", &[]),
            ("HTTP/1.1  200   Fine\r\n\r\n", "HTTP/1.1 200 Fine\r\n\r\n", &[]),
            ("http/1.1 200OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", &[]),
            ("HTTP/2 503 Busy\r\n\r\n", "HTTP/1.1 503 Busy\r\n\r\n", &[]),
            ("HTTP/1.1 200 O\x01K\r\n\r\n", "HTTP/1.1 200 O K\r\n\r\n", &[]),
            ("HTTP/1.1 200 OK\r\nCsp: a;\r\n  b;\r\n\tc\r\n\r\n", "HTTP/1.1 200 OK\r\nCsp: a; b; c\r\n\r\n", &[]),
            ("HTTP/1.1 200 OK\r\n folded\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", &[]),
            ("HTTP/1.1 200 OK\r\r\nA: b\r\r\n\r\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", &[]),
            ("HTTP/1.1 200 OK\r\nA: b\r\n\r\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", &[]),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2;x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", &[]),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2 2.0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", &[]),
            ("HTTP/1.1 200 OK\r\nServer : x\r\n\r\n", "HTTP/1.1 200 OK\r\nServer: x\r\n\r\n", &[]),
            ("HTTP/1.1 200 OK\r\nContent-Length\t: 5\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", &[]),
            ("HTTP/1.1 200 OK\r\nWarning in /a.php\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", &[]),
            ("HTTP/1.1 200 OK\r\n: x\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", &[]),
            ("HTTP/1.1 200 OK\r\nA B: c\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", &[("a b", "c")]),
            ("HTTP/1.1 200 OK\r\n(A@: c\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", &[("(a@", "c")]),
            ("HTTP/1.1 200 OK\r\nGrüße: c\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", &[("grüße", "c")]),
            ("HTTP/1.1 200 OK\r\nSet-Cookie: a=\x01\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", &[("set-cookie", "a=\x01")]),
            ("HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", &[("a", "b\rC: d")]),
            ("HTTP/1.1 200 OK\r\nConnection: cl\x01ose\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: cl ose\r\n\r\n", &[]),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\ncontent-length: 5\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
                &[],
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n",
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                &[],
            ),
        ] {
            let found = read(head);
            assert_eq!(text(&found.head), expected, "{head:?}");
            let expected: Vec<(String, String)> = apart.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
            assert_eq!(found.apart, expected, "{head:?}");
            assert!(!found.is_informational);
        }
        let umlaut = read("HTTP/1.1 595 Gerät aus\r\n\r\n");
        assert_eq!(
            (text(&umlaut.head).as_str(), umlaut.reason.as_deref()),
            ("HTTP/1.1 595\r\n\r\n", Some("Gerät aus"))
        );
        assert!(read("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").is_informational);
        assert!(!read("HTTP/1.1 101 Switching Protocols\r\n\r\n").is_informational);
    }

    #[test]
    fn what_cannot_be_read_is_quoted() {
        for (head, line) in [
            ("HTTP/1.1 OK\r\n\r\n", "HTTP/1.1 OK"),
            ("HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 2000 OK"),
            ("HTTP/1.1 007 x\r\n\r\n", "HTTP/1.1 007 x"),
            ("HTTP/one 200 OK\r\n\r\n", "HTTP/one 200 OK"),
            ("HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: -5\r\n\r\n", "Content-Length: -5"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length : 6\r\n\r\n", "Content-Length : 6"),
        ] {
            assert_eq!(rewritten(head.as_bytes()), Err(Unreadable::Line(line.to_owned())));
        }
        for (bytes, beginning) in [
            (&b"SSH-2.0-OpenSSH_9.6\r\n"[..], "\"SSH-2.0-OpenSSH_9.6\""),
            (b"220 mail ready", "\"220 mail ready\""),
            (b"\x15\x03\x03\x00\x02\x02\x46", "a message of TLS"),
        ] {
            assert_eq!(check_beginning(bytes), Err(Unreadable::Beginning(beginning.to_owned())));
        }
        for bytes in [&b""[..], b"H", b"\r\nHTT", b"http/1.1 200 OK"] {
            assert_eq!(check_beginning(bytes), Ok(()), "{bytes:?}");
        }
    }

    #[test]
    fn more_lines_than_the_library_reads_are_kept_apart() {
        let lines: String = (0..150).map(|n| format!("Set-Cookie: c{n}=1\r\n")).collect();
        let head = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 3\r\n\r\n");
        assert!(!is_plain(head.as_bytes()));
        let found = read(&head);
        let kept = text(&found.head);
        assert_eq!(kept.lines().count() + found.apart.len(), 153);
        assert!(kept.ends_with("Content-Length: 3\r\n\r\n") && is_plain(&found.head), "{kept}");
        assert_eq!(found.apart.last(), Some(&("set-cookie".to_owned(), "c149=1".to_owned())));
    }

    proptest! {
        #[test]
        fn what_is_rewritten_is_plain(head in "(HTTP/1.1 [2-5][0-9]{2}[ -~]{0,9}\r?\n)([ -~\t\x01é]{0,20}\r?\n){0,9}\r\n") {
            if let Ok(found) = rewritten(head.as_bytes()) {
                prop_assert!(is_plain(&found.head), "{:?}", text(&found.head));
                prop_assert_eq!(end(&found.head, &mut 0), Some(found.head.len()));
            }
        }

        #[test]
        fn a_plain_head_is_read_by_the_library(head in "(HTTP/1.[01] [2-5][0-9]{2}( [ -~é]{0,9})?\r?\n)([A-Za-z(:-]{1,4}:? ?[ -~\té\x7f]{0,6}\r?\n){0,9}\r?\n") {
            let mut headers = [httparse::EMPTY_HEADER; MOST_LINES];
            let is_read = httparse::Response::new(&mut headers).parse(head.as_bytes()).is_ok_and(|found| found.is_complete());
            // The library reads more: numbers of a length are compared later.
            prop_assert!(!is_plain(head.as_bytes()) || is_read, "{head:?}");
        }

        #[test]
        fn the_end_is_found_wherever_the_pieces_are_cut(head in "[\r\n]{0,3}[a:\r\n]{0,30}", cuts in proptest::collection::vec(0usize..33, 0..5)) {
            let whole = end(head.as_bytes(), &mut 0);
            let (mut searched, mut found) = (0, None);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(head.len())).chain([head.len()]).collect();
            cuts.sort_unstable();
            for cut in cuts {
                found = end(&head.as_bytes()[..cut], &mut searched);
                if found.is_some() {
                    break;
                }
            }
            prop_assert_eq!(found, whole);
        }
    }
}
