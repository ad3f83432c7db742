//! Signatures that the host computes with secrets: for signed requests, and for log-ins with a challenge.
//!
//! A plugin composes the key and the input of a signature from its own bytes, whole secrets and earlier signatures. It
//! sees neither them nor the result, which is masked in the answer.

use crate::Error;
use crate::message::{SecretEncoding, Signature, SignatureEncoding, SignaturePart};
use crate::private_key;
use crate::references::{LONGEST_NAME, is_name};
use crate::secrets::AvailableSecrets;
use crate::signed::{Output, Signed};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use data_encoding::{BASE32_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use md5::{Digest, Md5};
use ring::{digest, hmac, pbkdf2};
use rustls::SignatureScheme;
use secrecy::ExposeSecret;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of signatures of one request.
const MAX_SIGNATURES: usize = 16;
/// Maximum length of a key in bytes.
const MAX_KEY_BYTES: usize = 64 << 10;
/// Maximum length of an input in bytes.
const MAX_INPUT_BYTES: usize = 2 << 20;
/// Maximum number of parts of a key, and of an input.
const MAX_PARTS: usize = 64;
/// Maximum number of iterations of one PBKDF2.
const MAX_ITERATIONS: u32 = 1_000_000;
/// The work of all signatures of one call. One unit is an iteration of PBKDF2, or 16 bytes of input.
const MAX_WORK: u64 = 2_000_000;
/// The work of a signature with an RSA key, which takes up to 10 ms.
const RSA_WORK: u64 = 20_000;
/// The work of a signature with a key of an elliptic curve.
const CURVE_WORK: u64 = 500;
/// More work runs on another thread, because other polls wait for this one.
const INLINE_WORK: u64 = 2_000;
/// The period of a one-time password in seconds (RFC 6238).
const TOTP_PERIOD: u64 = 30;

/// The functions that signatures can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Digest(Hash),
    Hmac(Mac),
    Pbkdf2,
    /// A private key of this scheme.
    PrivateKey(SignatureScheme),
    Totp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mac {
    Sha1,
    Sha256,
    Sha512,
}

impl Algorithm {
    const ALL: [(&str, Self); 12] = [
        ("md5", Self::Digest(Hash::Md5)),
        ("sha1", Self::Digest(Hash::Sha1)),
        ("sha256", Self::Digest(Hash::Sha256)),
        ("sha512", Self::Digest(Hash::Sha512)),
        ("hmac-sha1", Self::Hmac(Mac::Sha1)),
        ("hmac-sha256", Self::Hmac(Mac::Sha256)),
        ("hmac-sha512", Self::Hmac(Mac::Sha512)),
        ("pbkdf2-hmac-sha256", Self::Pbkdf2),
        ("rsa-sha256", Self::PrivateKey(SignatureScheme::RSA_PKCS1_SHA256)),
        ("ecdsa-p256-sha256", Self::PrivateKey(SignatureScheme::ECDSA_NISTP256_SHA256)),
        ("ed25519", Self::PrivateKey(SignatureScheme::ED25519)),
        ("totp-sha1", Self::Totp),
    ];
}

/// The limit and the time that the signatures of a call share.
#[derive(Clone, Copy)]
pub(crate) struct Signing<'a> {
    /// The work of the call so far.
    pub work: &'a AtomicU64,
    /// The time of the call in seconds since the Unix epoch.
    pub now: i64,
    /// Whether a recording answers the request. It knows no secrets, so the result is always the same text.
    pub is_replayed: bool,
}

impl Signing<'_> {
    fn take(&self, work: u64) -> Result<(), Error> {
        if self.work.fetch_add(work, Ordering::Relaxed).saturating_add(work) > MAX_WORK {
            return Err(Error::TooMuchSigned);
        }
        Ok(())
    }
}

/// A signature whose key and input are complete.
struct Ready {
    algorithm: Algorithm,
    key: Vec<u8>,
    input: Vec<u8>,
    iterations: NonZeroU32,
    now: i64,
}

/// Computes the signatures of a request in their order. `body` is absent if the body itself refers to one of them.
pub(crate) async fn sign(
    known: &AvailableSecrets<'_>,
    signatures: &[Signature],
    body: Option<&[u8]>,
    signing: Signing<'_>,
) -> Result<Signed, Error> {
    if signatures.len() > MAX_SIGNATURES {
        return Err(Error::BadRequest(format!("it has more than {MAX_SIGNATURES} signatures")));
    }
    let mut signed = Signed::default();
    for signature in signatures {
        let parts = Parts { known, signed: &signed, body, is_replayed: signing.is_replayed };
        if signing.is_replayed {
            // A mistake is refused as by a host that sends it.
            parts.ready(signature, signing.now)?;
            let output = match signature.encoding {
                SignatureEncoding::Raw => Output::Raw(b"signature".to_vec()),
                _ => Output::Text("signature".to_owned()),
            };
            if signed.insert(signature.name.clone(), output).is_some() {
                return Err(bad(signature, TWICE));
            }
            continue;
        }
        // Composing the input of a further one takes time as well.
        signing.take(1)?;
        let ready = parts.ready(signature, signing.now)?;
        let (work, is_password) = (ready.work(), ready.algorithm == Algorithm::Totp);
        signing.take(work)?;
        let result = if work <= INLINE_WORK {
            ready.computed()
        } else {
            let computing = tokio::task::spawn_blocking(move || ready.computed());
            computing.await.unwrap_or_else(|error| Err(format!("computing it failed: {error}")))
        };
        let bytes = result.map_err(|why| match signature.key.as_slice() {
            [SignaturePart::Secret(name, _)] => unusable(name, why),
            _ => bad(signature, &why),
        })?;
        let output = match signature.encoding {
            _ if is_password => Output::Text(String::from_utf8_lossy(&bytes).into_owned()),
            SignatureEncoding::Raw => Output::Raw(bytes),
            SignatureEncoding::Hex => Output::Text(HEXLOWER.encode(&bytes)),
            SignatureEncoding::Base64 => Output::Text(STANDARD.encode(bytes)),
            SignatureEncoding::Base64Url => Output::Text(URL_SAFE_NO_PAD.encode(bytes)),
        };
        if signed.insert(signature.name.clone(), output).is_some() {
            return Err(bad(signature, TWICE));
        }
    }
    Ok(signed)
}

/// Why a second signature of a name is refused.
const TWICE: &str = "there are two of this name";

/// The error for a secret that an operator must correct.
fn unusable(name: &str, why: String) -> Error {
    Error::SecretUnusable { name: name.to_owned(), why }
}

fn bad(signature: &Signature, why: &str) -> Error {
    let name: String = signature.name.chars().take(LONGEST_NAME).collect();
    Error::BadRequest(format!("its signature {name:?}: {why}"))
}

/// The secrets, signatures and body that the parts of a signature can refer to.
struct Parts<'a> {
    known: &'a AvailableSecrets<'a>,
    signed: &'a Signed,
    body: Option<&'a [u8]>,
    /// Whether the values of the secrets are those of a recording, which are not in their encoding.
    is_replayed: bool,
}

impl Parts<'_> {
    fn ready(&self, signature: &Signature, now: i64) -> Result<Ready, Error> {
        let Signature { name, algorithm, key, input, iterations, .. } = signature;
        let refused = |why: &str| Err(bad(signature, why));
        if !is_name(name) {
            return refused("its name is not 1 to 64 letters, digits, _ and -");
        }
        let Some((_, algorithm)) = Algorithm::ALL.into_iter().find(|(known, _)| known == algorithm) else {
            let all = Algorithm::ALL.map(|(name, _)| name).join(", ");
            let algorithm: String = algorithm.chars().take(LONGEST_NAME).collect();
            return refused(&format!("there is no algorithm {algorithm:?}: use one of {all}"));
        };
        let is_pbkdf2 = algorithm == Algorithm::Pbkdf2;
        let iterations = match iterations {
            Some(count) if is_pbkdf2 && (1..=MAX_ITERATIONS).contains(count) => NonZeroU32::new(*count),
            None if !is_pbkdf2 => Some(NonZeroU32::MIN),
            _ => None,
        };
        let Some(iterations) = iterations else {
            return refused(&format!("pbkdf2-hmac-sha256, and nothing else, has 1 to {MAX_ITERATIONS} iterations"));
        };
        let key = match algorithm {
            Algorithm::Digest(_) if !key.is_empty() => return refused("a digest has no key"),
            Algorithm::PrivateKey(_) => match key.as_slice() {
                [SignaturePart::Secret(name, SecretEncoding::Utf8)] => {
                    self.known.private_key(name)?.expose_secret().as_bytes().to_vec()
                }
                _ => return refused("its key must be one secret, a private key in PEM"),
            },
            _ => self.joined(signature, key, ("its key", MAX_KEY_BYTES))?,
        };
        let input = self.joined(signature, input, ("its input", MAX_INPUT_BYTES))?;
        if algorithm == Algorithm::Totp && !input.is_empty() {
            return refused("a one-time password has no input");
        }
        Ok(Ready { algorithm, key, input, iterations, now })
    }

    /// Concatenates the parts of a key or an input.
    fn joined(
        &self,
        signature: &Signature,
        parts: &[SignaturePart],
        (of, limit): (&str, usize),
    ) -> Result<Vec<u8>, Error> {
        let refused = |why: &str| bad(signature, why);
        if parts.len() > MAX_PARTS {
            return Err(refused(&format!("{of} has more than {MAX_PARTS} parts")));
        }
        let mut joined = Vec::new();
        for part in parts {
            match part {
                SignaturePart::Bytes(bytes) => {
                    if let Some(name) = self.known.referred(bytes) {
                        let why = format!(
                            "{of} contains a reference to {name}, which would be signed as it is: use a part for the secret"
                        );
                        return Err(refused(&why));
                    }
                    joined.extend_from_slice(bytes);
                }
                SignaturePart::Body => joined.extend_from_slice(self.body.ok_or_else(|| {
                    refused("it signs the body, which itself refers to a signature: sign one or the other")
                })?),
                SignaturePart::Secret(name, encoding) => {
                    let secret = self.known.value(name, "a signature")?.expose_secret();
                    let encoding = if self.is_replayed { SecretEncoding::Utf8 } else { *encoding };
                    let bytes = decoded(secret, encoding);
                    joined.extend(bytes.map_err(|what| unusable(name, format!("it is not {what}")))?);
                }
                SignaturePart::Signature(name) => {
                    let earlier = self.signed.bytes(name).ok_or_else(|| {
                        let name: String = name.chars().take(LONGEST_NAME).collect();
                        refused(&format!("it needs the signature {name:?}, which is not before it"))
                    })?;
                    joined.extend_from_slice(earlier);
                }
            }
            if joined.len() > limit {
                return Err(refused(&format!("{of} is longer than {limit} bytes")));
            }
        }
        Ok(joined)
    }
}

/// Returns the bytes that a secret stands for. The error names the encoding that it does not have.
fn decoded(secret: &str, encoding: SecretEncoding) -> Result<Vec<u8>, &'static str> {
    match encoding {
        SecretEncoding::Utf8 => Ok(secret.as_bytes().to_vec()),
        SecretEncoding::Utf16Le => Ok(secret.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        SecretEncoding::Base64 => {
            let standard = secret.trim().trim_end_matches('=').replace('-', "+").replace('_', "/");
            STANDARD_NO_PAD.decode(standard).map_err(|_| "base64")
        }
        SecretEncoding::Base32 => {
            // Services print it in groups, for people who type it.
            let digits: String = secret.trim().trim_end_matches('=').replace([' ', '-'], "").to_ascii_uppercase();
            BASE32_NOPAD.decode(digits.as_bytes()).map_err(|_| "base32")
        }
        SecretEncoding::Hex => HEXLOWER_PERMISSIVE.decode(secret.trim().as_bytes()).map_err(|_| "hex digits"),
    }
}

impl Ready {
    fn work(&self) -> u64 {
        let input = self.input.len() as u64 / 16 + 1;
        match self.algorithm {
            Algorithm::Digest(_) | Algorithm::Hmac(_) | Algorithm::Totp => input,
            Algorithm::Pbkdf2 => input + u64::from(self.iterations.get()),
            Algorithm::PrivateKey(SignatureScheme::RSA_PKCS1_SHA256) => input + RSA_WORK,
            Algorithm::PrivateKey(_) => input + CURVE_WORK,
        }
    }

    fn computed(&self) -> Result<Vec<u8>, String> {
        let Self { key, input, .. } = self;
        Ok(match self.algorithm {
            Algorithm::Digest(Hash::Md5) => Md5::digest(input).to_vec(),
            Algorithm::Digest(Hash::Sha1) => digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, input).as_ref().to_vec(),
            Algorithm::Digest(Hash::Sha256) => digest::digest(&digest::SHA256, input).as_ref().to_vec(),
            Algorithm::Digest(Hash::Sha512) => digest::digest(&digest::SHA512, input).as_ref().to_vec(),
            Algorithm::Hmac(mac) => {
                let algorithm = match mac {
                    Mac::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
                    Mac::Sha256 => hmac::HMAC_SHA256,
                    Mac::Sha512 => hmac::HMAC_SHA512,
                };
                hmac::sign(&hmac::Key::new(algorithm, key), input).as_ref().to_vec()
            }
            Algorithm::Pbkdf2 => {
                let mut derived = [0; 32];
                pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, self.iterations, input, key, &mut derived);
                derived.to_vec()
            }
            Algorithm::PrivateKey(scheme) => private_key::sign(key, scheme, input)?,
            Algorithm::Totp => one_time_password(key, self.now).into_bytes(),
        })
    }
}

/// Returns a one-time password of 6 digits (RFC 6238, RFC 4226).
fn one_time_password(key: &[u8], now: i64) -> String {
    let period = now.max(0) as u64 / TOTP_PERIOD;
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key);
    let tag = hmac::sign(&key, &period.to_be_bytes());
    let tag = tag.as_ref();
    let offset = usize::from(tag[tag.len() - 1] & 15);
    let number = tag[offset..offset + 4].iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte));
    format!("{:06}", (number & 0x7fff_ffff) % 1_000_000)
}

#[cfg(test)]
mod tests;
