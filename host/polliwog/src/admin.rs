//! The admin token: from the environment, or generated and kept in the data directory for its owner.
//!
//! The database knows only its hash. A user who can read the token's file can also write the database, so the file gives
//! nothing away. A token of the environment is not kept.

use anyhow::bail;
use catalog::hex;
use config::environment;
use engine::{Clock, random_bytes};
use std::io::{ErrorKind, Write};
use std::path::Path;
use store::Store;
use web::Auth;

/// The variable that sets the admin token, for automation.
pub(crate) const ADMIN_TOKEN: &str = "POLLIWOG_ADMIN_TOKEN";
/// The token's file in the data directory.
pub(crate) const FILE: &str = "admin-token";

/// Keeps a generated token. If that fails, the host goes on: the token is printed as well.
pub(crate) fn keep(data_dir: &Path, token: &str) {
    if let Err(error) = write(data_dir, token) {
        tracing::warn!("the admin token cannot be kept in {} ({error}): note it down", data_dir.display());
    }
}

fn write(data_dir: &Path, token: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let draft = data_dir.join("admin-token.new");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    std::fs::rename(draft, data_dir.join(FILE))
}

/// Removes a token that is no longer valid.
pub(crate) fn forget(data_dir: &Path) {
    match std::fs::remove_file(data_dir.join(FILE)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let file = data_dir.join(FILE);
            tracing::warn!("{} holds a token that is no longer valid and cannot be removed: {error}", file.display());
        }
        _ => {}
    }
}

/// The kept token; `None` if there is none.
pub(crate) fn read(data_dir: &Path) -> std::io::Result<Option<String>> {
    match std::fs::read_to_string(data_dir.join(FILE)) {
        Ok(token) => Ok(Some(token.trim_end().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a start knows about the admin token.
pub(crate) enum AdminToken {
    /// It was generated now.
    Made(String),
    /// The data directory keeps it.
    Kept,
    /// Only its hash is known.
    Hashed,
}

/// The admin token of a start, and who may log in with it.
pub(crate) struct Admin {
    /// Checks tokens and sessions.
    pub auth: Auth,
    /// The token.
    pub token: AdminToken,
}

/// The token that the environment sets.
///
/// # Errors
/// If it is not a good token.
pub(crate) fn from_environment() -> anyhow::Result<Option<String>> {
    match environment(ADMIN_TOKEN) {
        Some(token) if token.len() < 16 || !token.bytes().all(|byte| byte.is_ascii_graphic()) => bail!(
            "{ADMIN_TOKEN} must have at least 16 characters, all of them visible ASCII: use a long random one, as from \
             `openssl rand -hex 32`"
        ),
        token => Ok(token),
    }
}

/// The admin token: from the environment, in place of any earlier one, or generated at the first start. The database knows its
/// hash; a generated token is kept in the data directory too, for its owner.
pub(crate) fn start(store: &Store, data_dir: &Path, clock: &Clock) -> anyhow::Result<Admin> {
    let now = clock.wall();
    let kept = store.reader().admin_token()?;
    let admin = |hash, sessions: Vec<_>, token| Admin { auth: Auth::new(hash, sessions), token };
    if let Some(token) = from_environment()? {
        let hash = Auth::hash(&token);
        let sessions = store.reader().sessions(now)?;
        if kept == Some(hash) {
            return Ok(admin(hash, sessions, AdminToken::Hashed));
        }
        // Sessions that began with the previous token end.
        sessions.into_iter().for_each(|(session, _)| store.writer().session(session, None));
        store.writer().admin_token(hash, now);
        forget(data_dir);
        return Ok(admin(hash, Vec::new(), AdminToken::Hashed));
    }
    if let Some(hash) = kept {
        let sessions = store.reader().sessions(now)?;
        let shown = read(data_dir).is_ok_and(|token| token.is_some_and(|token| Auth::hash(&token) == hash));
        if !shown {
            // It is the token of another database, or was replaced.
            forget(data_dir);
        }
        return Ok(admin(hash, sessions, if shown { AdminToken::Kept } else { AdminToken::Hashed }));
    }
    let token = hex(&random_bytes::<32>());
    store.writer().admin_token(Auth::hash(&token), now);
    keep(data_dir, &token);
    Ok(admin(Auth::hash(&token), Vec::new(), AdminToken::Made(token)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_kept_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), None);
        keep(folder.path(), "first");
        keep(folder.path(), "second");
        assert_eq!(read(folder.path()).unwrap().as_deref(), Some("second"));
        let mode = std::fs::metadata(folder.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        forget(folder.path());
        assert_eq!(read(folder.path()).unwrap(), None);
    }
}
