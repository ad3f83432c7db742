//! Tokens for programs and screens, each with what it may do.

use crate::Timestamp;

/// The permission of a token. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// See the page for screens on a wall, and nothing else.
    Wall,
    /// Read everything except tokens.
    Read,
    /// Also poll, pause and resume targets, and treat dead letters and breakers.
    Operate,
    /// Everything.
    Admin,
}

impl Scope {
    /// All scopes, the smallest first.
    pub const ALL: [Self; 4] = [Self::Wall, Self::Read, Self::Operate, Self::Admin];

    /// Returns the name used in API and user interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// Returns the scope with the name `word`; `None` if the name is unknown.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The SHA-256 of the secret.
    pub hash: [u8; 32],
    /// The name that an operator gave it; empty for the token of the first start.
    pub name: String,
    /// The permission.
    pub scope: Scope,
    /// When it was made.
    pub created: Timestamp,
    /// When it ends to be valid; `None` if it never does.
    pub expires: Option<Timestamp>,
    /// When it was last used, to the hour; `None` if it never was.
    pub last_used: Option<Timestamp>,
}

impl Token {
    /// Whether it is valid at a time.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

/// A session of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The SHA-256 of its id.
    pub hash: [u8; 32],
    /// When it ends.
    pub until: Timestamp,
    /// The hash of the token that it was begun with; `None` for that of the first start.
    pub token: Option<[u8; 32]>,
}

/// A change of the tokens and sessions, to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// The token of the first start has this hash, since this time. It replaces the previous one.
    First([u8; 32], Timestamp),
    /// A token with a name is new, or changed.
    Token(Token),
    /// The token with this hash is deleted, with its sessions.
    Revoked([u8; 32]),
    /// A session began.
    Session(Session),
    /// The session with this hash ended.
    SessionEnded([u8; 32]),
}
