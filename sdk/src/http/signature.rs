//! Signatures that the host computes for requests: see [`Request::sign`](super::Request::sign).

use super::contract;
use super::contract::{SecretEncoding, SignatureEncoding, SignaturePart};

/// A part of the key or the input of a signature.
///
/// ```
/// # use polliwog_sdk::http::{Part, Signature};
/// // As AWS does it: the key of one signature is the result of another.
/// let key = Signature::hmac_sha256(vec!["AWS4".into(), Part::secret("secret_key")]).input("20261129").raw();
/// let next = Signature::hmac_sha256(vec![Part::signature("date")]).input("eu-central-1").raw();
/// ```
#[derive(Clone, Debug)]
pub struct Part(SignaturePart);

impl Part {
    /// The body of the request as it is sent.
    pub fn body() -> Self {
        Self(SignaturePart::Body)
    }

    /// A whole secret in UTF-8.
    pub fn secret(name: impl Into<String>) -> Self {
        Self::secret_in(name, SecretEncoding::Utf8)
    }

    /// A whole secret in another encoding. See [`SecretEncoding`].
    pub fn secret_in(name: impl Into<String>, encoding: SecretEncoding) -> Self {
        Self(SignaturePart::Secret(contract::SecretPart { name: name.into(), encoding }))
    }

    /// The result of an earlier signature of the same request, in that signature's encoding.
    pub fn signature(name: impl Into<String>) -> Self {
        Self(SignaturePart::Signature(name.into()))
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        text.as_bytes().to_vec().into()
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<Vec<u8>> for Part {
    fn from(bytes: Vec<u8>) -> Self {
        Self(SignaturePart::Bytes(bytes))
    }
}

/// The key of a signature: one part, or several that are concatenated.
pub type Key = Vec<Part>;

/// A signature to be computed by the host, with the result in hex digits unless another encoding is chosen.
///
/// ```
/// # use polliwog_sdk::http::{Part, Request, Signature, signature};
/// // A signed webhook: the header has the HMAC of a time and the body.
/// let request = Request::new("POST", "/hook")
///     .body("{}", polliwog_sdk::http::BodyEncoding::Json)
///     .sign("v1", Signature::hmac_sha256(vec![Part::secret("key")]).input("1720000000.").input(Part::body()))
///     .header("x-signature", format!("t=1720000000,v1={}", signature("v1")));
/// ```
#[derive(Clone, Debug)]
pub struct Signature(contract::Signature);

impl Signature {
    /// A signature with one of the algorithms that the contract lists, for example "hmac-sha512".
    pub fn new(algorithm: impl Into<String>, key: Key) -> Self {
        Self(contract::Signature {
            name: String::new(),
            algorithm: algorithm.into(),
            key: key.into_iter().map(|part| part.0).collect(),
            input: Vec::new(),
            encoding: SignatureEncoding::Hex,
            iterations: None,
            extra: Vec::new(),
        })
    }

    /// The SHA-256 of the input.
    pub fn sha256() -> Self {
        Self::new("sha256", Vec::new())
    }

    /// The HMAC-SHA-256 of the input.
    pub fn hmac_sha256(key: Key) -> Self {
        Self::new("hmac-sha256", key)
    }

    /// RS256 of JSON Web Signatures. `key` is the name of a secret that is a private key.
    pub fn rsa_sha256(key: impl Into<String>) -> Self {
        Self::new("rsa-sha256", vec![Part::secret(key)]).base64url()
    }

    /// ES256 of JSON Web Signatures. `key` is the name of a secret that is a private key.
    pub fn ecdsa_p256_sha256(key: impl Into<String>) -> Self {
        Self::new("ecdsa-p256-sha256", vec![Part::secret(key)]).base64url()
    }

    /// EdDSA of JSON Web Signatures. `key` is the name of a secret that is a private key.
    pub fn ed25519(key: impl Into<String>) -> Self {
        Self::new("ed25519", vec![Part::secret(key)]).base64url()
    }

    /// A one-time password of 6 digits. `key` is the name of a secret in base32.
    pub fn one_time_password(key: impl Into<String>) -> Self {
        Self::new("totp-sha1", vec![Part::secret_in(key, SecretEncoding::Base32)])
    }

    /// 32 bytes that PBKDF2 derives from a password with HMAC-SHA-256. The input is the salt.
    pub fn pbkdf2_hmac_sha256(password: Key, iterations: u32) -> Self {
        let Self(signature) = Self::new("pbkdf2-hmac-sha256", password);
        Self(contract::Signature { iterations: Some(iterations), ..signature })
    }

    /// Adds a part to the input.
    #[must_use]
    pub fn input(mut self, part: impl Into<Part>) -> Self {
        self.0.input.push(part.into().0);
        self
    }

    /// Writes the result in base64 with padding.
    #[must_use]
    pub fn base64(self) -> Self {
        self.encoded(SignatureEncoding::Base64)
    }

    /// Writes the result in URL-safe base64 without padding.
    #[must_use]
    pub fn base64url(self) -> Self {
        self.encoded(SignatureEncoding::Base64url)
    }

    /// Leaves the result as bytes, for the key or input of another signature.
    #[must_use]
    pub fn raw(self) -> Self {
        self.encoded(SignatureEncoding::Raw)
    }

    fn encoded(self, encoding: SignatureEncoding) -> Self {
        Self(contract::Signature { encoding, ..self.0 })
    }

    pub(super) fn named(self, name: String) -> contract::Signature {
        contract::Signature { name, ..self.0 }
    }
}
