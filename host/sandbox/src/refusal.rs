//! Why a plugin file is refused.

/// Why a plugin file is refused: a code for programs, and one sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The stable error code in snake_case.
    pub code: &'static str,
    /// The problem and the remedy.
    pub message: String,
    class: Class,
}

/// How long a refusal is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// The host could not check the file at that time. The next attempt may succeed.
    Transient,
    /// The same bytes are always refused.
    Permanent,
    /// Like `Permanent`, but finding the reason takes long, so it is stored on disk.
    Stored,
}

/// The codes of refusals that are stored on disk.
const STORED_CODES: [&str; 5] = ["compile_limit", "not_valid", "too_large", "bad_descriptor", "describe_failed"];

impl Refusal {
    /// A refusal because this host could not check the file at the time.
    pub(crate) fn transient(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), class: Class::Transient }
    }

    /// A refusal because of the file.
    pub(crate) fn permanent(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), class: Class::Permanent }
    }

    /// A refusal because of the file, whose reason took long to find.
    pub(crate) fn stored(code: &'static str, message: impl Into<String>) -> Self {
        debug_assert!(STORED_CODES.contains(&code), "{code} must be one of STORED_CODES");
        Self { code, message: message.into(), class: Class::Stored }
    }

    /// Parses a stored refusal. `None` if its code is not one of those that are stored.
    pub(crate) fn from_stored(code: &str, message: impl Into<String>) -> Option<Self> {
        let code = STORED_CODES.into_iter().find(|known| *known == code)?;
        Some(Self::stored(code, message))
    }

    /// Returns whether the next attempt to load the same file may succeed.
    pub fn is_passing(&self) -> bool {
        self.class == Class::Transient
    }

    /// Returns whether the refusal is stored on disk.
    pub(crate) fn is_stored(&self) -> bool {
        self.class == Class::Stored
    }
}
