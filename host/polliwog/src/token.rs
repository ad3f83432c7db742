//! The admin token in the data directory: whoever owns that can see it again.
//!
//! The database knows its hash alone. Who can read this file can also write the database, so it gives nothing away. One that
//! the environment sets is not kept.

use crate::common::print;
use config::{Places, data_dir};
use std::io::{ErrorKind, Write};
use std::path::Path;

const FILE: &str = "admin-token";

/// Keeps a token that was made. Where that fails the host goes on: the token is printed as well.
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

/// The token that is kept, where there is one.
pub(crate) fn read(data_dir: &Path) -> std::io::Result<Option<String>> {
    match std::fs::read_to_string(data_dir.join(FILE)) {
        Ok(token) => Ok(Some(token.trim_end().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// `token show`.
pub(crate) fn show(places: &Places, demo: bool) -> anyhow::Result<u8> {
    let data_dir = data_dir(places, demo, &crate::common::environment);
    let token = read(&data_dir).map_err(|error| unreadable(&data_dir.join(FILE), &error))?;
    let Some(token) = token else {
        anyhow::bail!(
            "{} keeps no admin token: no host has started with it yet, or POLLIWOG_ADMIN_TOKEN set the token; start the host \
             with that variable to set another",
            data_dir.display()
        );
    };
    print(&token)?;
    Ok(0)
}

fn unreadable(path: &Path, error: &std::io::Error) -> anyhow::Error {
    anyhow::anyhow!("{} cannot be read ({error}): ask as the user who runs the host", path.display())
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
