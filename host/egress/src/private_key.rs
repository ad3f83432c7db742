//! Private keys in PEM, and signatures with them.

use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

/// Returns whether a text is a private key in PEM that can sign.
pub(crate) fn is_valid(pem: &str) -> bool {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).is_ok_and(|key| any_supported_type(&key).is_ok())
}

/// Signs with a private key in PEM. The error completes a sentence about the signature.
pub(crate) fn sign(pem: &[u8], scheme: SignatureScheme, input: &[u8]) -> Result<Vec<u8>, String> {
    let not_pem = "it is not a private key in PEM, or of a kind that Polliwog does not have";
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| not_pem)?;
    let key = any_supported_type(&key).map_err(|_| not_pem)?;
    let signer = key.choose_scheme(&[scheme]).ok_or("it is a key for another algorithm")?;
    let signature = signer.sign(input).map_err(|error| error.to_string())?;
    if scheme != SignatureScheme::ECDSA_NISTP256_SHA256 {
        return Ok(signature);
    }
    fixed(&signature).ok_or_else(|| "its result is not a signature".to_owned())
}

/// Converts an ECDSA signature of P-256 from DER (RFC 3279, section 2.2.3) to the 64 bytes of JWS (RFC 7518, section
/// 3.4).
fn fixed(der: &[u8]) -> Option<Vec<u8>> {
    let mut rest = der.strip_prefix(&[0x30])?.get(1..)?;
    let mut fixed = Vec::with_capacity(64);
    for _ in 0..2 {
        let (length, after) = rest.strip_prefix(&[0x02])?.split_first()?;
        let (number, after) = after.split_at_checked(usize::from(*length))?;
        let digits = &number[number.iter().take_while(|byte| **byte == 0).count()..];
        fixed.resize(fixed.len() + 32usize.checked_sub(digits.len())?, 0);
        fixed.extend_from_slice(digits);
        rest = after;
    }
    Some(fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_number_of_an_ecdsa_signature_is_padded() {
        let der = [0x30, 0x08, 0x02, 0x02, 0x00, 0x80, 0x02, 0x02, 0x12, 0x34];
        let mut expected = [0; 64];
        (expected[31], expected[62], expected[63]) = (0x80, 0x12, 0x34);
        assert_eq!(fixed(&der).as_deref(), Some(&expected[..]));
        for bad in [&der[..0], &der[..1], &der[..4], &der[..9], &[0x31, 0x00], &[0x30, 0x03, 0x02, 0x7f, 0x00]] {
            assert_eq!(fixed(bad), None, "{bad:?}");
        }
    }
}
