//! Seals of records: an HMAC with a key of the device, so that who writes to the broker cannot speak for a device, nor
//! assign targets to it.
//!
//! A sealed record is [`SEALED`], then the first 16 bytes of the HMAC-SHA256 (RFC 2104) of its subject, a zero byte and
//! the record, then the record. The subject is part of it, so that a record is of no use under another key. A copy of
//! an earlier record stays valid; its stamp says that it is old.
//!
//! The key of a device is the HMAC of its id with the key of the operators, so operators need one key only.

use crate::accounts::OPERATOR;
use fleet::wire::{Record, decode};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;

/// The first byte of a sealed record. No version of a record has it.
const SEALED: u8 = 0xff;
/// The length of the HMAC in a record, in bytes.
const TAG: usize = 16;

/// A key of 32 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    /// Reads a key from 64 hexadecimal digits; `None` if the text is something else.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let mut key = [0; 32];
        if digits.len() != 2 * key.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(key))
    }

    /// The key as hexadecimal digits.
    pub fn to_hex(&self) -> String {
        model::hex(&self.0)
    }

    /// Returns the key of a device, of that of the operators.
    #[must_use]
    pub fn of_device(&self, device: &str) -> Self {
        Self(self.mac(&[b"device ", device.as_bytes()]).finalize().into_bytes().into())
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC accepts keys of any length");
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// The keys that a host has.
#[derive(Clone, Debug, Default)]
pub enum Keys {
    /// None: records are not sealed, and seals are not checked.
    #[default]
    None,
    /// Those of a device: its own.
    Device(Key),
    /// Those of an operator: every device's.
    Operator(Key),
}

impl Keys {
    /// Returns the bytes of a record of a device under a subject.
    pub(crate) fn seal(&self, (device, subject): (&str, &str), record: Vec<u8>) -> Vec<u8> {
        let Some(key) = self.of(device) else { return record };
        let tag = key.mac(&[subject.as_bytes(), &[0], &record]).finalize().into_bytes();
        [&[SEALED], &tag[..TAG], &record].concat()
    }

    /// Returns the record of a device under a subject from its bytes.
    ///
    /// # Errors
    /// If this host has the device's key, and the record is not sealed with it.
    pub(crate) fn open<'a>(&self, (device, subject): (&str, &str), bytes: &'a [u8]) -> Result<&'a [u8], Unsealed> {
        let sealed = bytes.split_first().filter(|(first, _)| **first == SEALED);
        let parts = sealed.and_then(|(_, rest)| rest.split_at_checked(TAG));
        let Some(key) = self.of(device) else { return Ok(parts.map_or(bytes, |(_, record)| record)) };
        let (tag, record) = parts.ok_or(Unsealed::Missing)?;
        let mac = key.mac(&[subject.as_bytes(), &[0], record]);
        mac.verify_truncated_left(tag).map_err(|_| Unsealed::Wrong).map(|()| record)
    }

    /// Returns the record of a device under a subject, decoded.
    ///
    /// # Errors
    /// As [`Keys::open`], and if the bytes are not such a record; in words.
    pub(crate) fn read<R: Record>(&self, place: (&str, &str), bytes: &[u8]) -> Result<R, String> {
        let opened = self.open(place, bytes).map_err(|why| why.to_string())?;
        decode(opened).map_err(|why| why.to_string())
    }

    /// The key of a device, or of the operators' own records.
    fn of(&self, device: &str) -> Option<Key> {
        match self {
            Self::Operator(key) => Some(key.of_device(device)),
            Self::Device(key) if device != OPERATOR => Some(key.clone()),
            Self::Device(_) | Self::None => None,
        }
    }
}

/// Why a record is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsealed {
    #[error(
        "the record is not sealed: give the host that wrote it its file of `polliwog fleet credentials` as [fleet] credentials"
    )]
    Missing,
    #[error(
        "the record's seal is not of the expected key: it is forged, or its host has a file of other `polliwog fleet credentials`"
    )]
    Wrong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_of_the_device_seals_its_records() {
        let operators = Key::from_hex(&"5a".repeat(32)).unwrap();
        let all = Keys::Operator(operators.clone());
        let [first, second] = ["host-1", "host-2"].map(|device| Keys::Device(operators.of_device(device)));
        let (own, place) = (b"record".to_vec(), ("host-1", "info.host-1"));
        let sealed = first.seal(place, own.clone());
        assert_eq!(sealed.len(), own.len() + 1 + TAG);
        assert_eq!((all.open(place, &sealed), first.open(place, &sealed)), (Ok(&own[..]), Ok(&own[..])));
        assert_eq!(all.seal(place, own.clone()), sealed);
        // Another device, another subject, another byte, a cut, and no seal at all.
        assert_eq!(all.open(place, &second.seal(place, own.clone())), Err(Unsealed::Wrong));
        assert_eq!(all.open(("host-1", "state.host-1.web"), &sealed), Err(Unsealed::Wrong));
        assert_eq!(all.open(("host-2", "info.host-1"), &sealed), Err(Unsealed::Wrong));
        for at in 1..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(all.open(place, &changed), Err(Unsealed::Wrong), "{at}");
            assert!(all.open(place, &sealed[..at]).is_err(), "{at}");
        }
        assert_eq!(all.open(place, &own), Err(Unsealed::Missing));
        assert_eq!(all.open(place, &[]), Err(Unsealed::Missing));
        // A host without keys reads both.
        assert_eq!((Keys::None.open(place, &sealed), Keys::None.open(place, &own)), (Ok(&own[..]), Ok(&own[..])));
        assert_eq!(Keys::None.seal(place, own.clone()), own);
        // The operators' own records are not for devices.
        assert_eq!(first.open((OPERATOR, "x"), &all.seal((OPERATOR, "x"), own.clone())), Ok(&own[..]));
    }

    #[test]
    fn a_key_is_64_hexadecimal_digits_and_is_not_shown() {
        let text = "0123456789abcdef".repeat(4);
        let key = Key::from_hex(&text).unwrap();
        assert_eq!((key.to_hex(), format!("{key:?}")), (text.clone(), "Key(…)".to_owned()));
        for other in ["", "00", &text[1..], &"+1".repeat(32), &"é".repeat(32), &format!("{text}00")] {
            assert_eq!(Key::from_hex(other), None, "{other}");
        }
        assert_ne!(key.of_device("a"), key.of_device("b"));
    }

    #[test]
    fn the_seal_is_the_hmac_of_subject_and_record() {
        // Computed with `openssl dgst -sha256 -mac HMAC -macopt hexkey:…` for the key and the seal.
        let operators = Key::from_hex(&"00".repeat(32)).unwrap();
        let device = operators.of_device("a");
        assert_eq!(device.to_hex(), KNOWN.0);
        let sealed = Keys::Device(device).seal(("a", "heartbeat.a"), vec![2, 1]);
        let tag: String = sealed[1..=TAG].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((sealed[0], tag.as_str(), &sealed[1 + TAG..]), (SEALED, KNOWN.1, &[2, 1][..]));
    }

    const KNOWN: (&str, &str) =
        ("b4952bf9ed872bbb20b838ec9bfac360e177efbcffe782023419c9739aa7225e", "34cfc8374dfd35cb9253dd4060b58a88");
}
