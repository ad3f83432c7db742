//! Requests for what a device knows, and the answers: what its own API answers.

use super::{Record, WireError, text};
use serde::{Deserialize, Serialize};

/// The maximum size of a part of an answer in bytes: a quarter of what the broker takes in one message by default.
const LARGEST_PART: usize = 256 << 10;
/// The maximum length of a path in bytes.
const PATH: usize = 2048;

/// A request for what the API of a device answers: `agent.<device>.read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadQuery {
    /// The last part of the subject of the answer: `logs.<device>.<token>`.
    pub token: u64,
    /// The path, with the query.
    pub path: String,
}

/// A part of the answer to a [`ReadQuery`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadPart {
    /// The number of this part, from 0.
    pub part: u32,
    /// Whether it is the last part.
    pub is_last: bool,
    /// The status of the answer, as in HTTP.
    pub status: u16,
    /// A part of the body.
    pub body: String,
}

impl Record for ReadQuery {
    fn check(&self) -> Result<(), WireError> {
        text(&self.path, PATH, "path")
    }
}

impl Record for ReadPart {
    const LARGEST: usize = LARGEST_PART;

    fn check(&self) -> Result<(), WireError> {
        Ok(())
    }
}

/// Distributes a body over as many parts as it needs.
pub fn read_parts(status: u16, body: &str) -> Vec<ReadPart> {
    /// Leaves space for the other fields.
    const BODY: usize = LARGEST_PART - 64;
    let (mut parts, mut rest) = (Vec::new(), body);
    loop {
        let (part, after) = rest.split_at(rest.floor_char_boundary(BODY));
        let number = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        parts.push(ReadPart { part: number, is_last: after.is_empty(), status, body: part.to_owned() });
        if after.is_empty() {
            return parts;
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{decode, encode};
    use super::*;

    #[test]
    fn a_body_of_any_size_is_sent_in_parts() {
        let query = ReadQuery { token: 7, path: "/api/v1/targets".to_owned() };
        assert_eq!(decode(&encode(&query).unwrap()).as_ref(), Ok(&query));
        let long = ReadQuery { path: "x".repeat(PATH + 1), ..query };
        assert_eq!(encode(&long), Err(WireError::TooLong("path")));
        for body in [String::new(), "{}".to_owned(), "é".repeat(300_000)] {
            let parts = read_parts(200, &body);
            let sent = parts.iter().map(|part| decode::<ReadPart>(&encode(part).unwrap()).unwrap());
            let sent: Vec<ReadPart> = sent.collect();
            assert!(sent.iter().zip(0..).all(|(part, number)| part.part == number && part.status == 200));
            assert_eq!(sent.iter().filter(|part| part.is_last).count(), 1);
            assert!(sent.last().unwrap().is_last);
            assert_eq!(sent.into_iter().map(|part| part.body).collect::<String>(), body);
        }
    }
}
