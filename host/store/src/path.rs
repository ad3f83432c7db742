//! Files next to the database.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns the path of a side file: the whole file name of the database plus an ending, so that two databases never
/// share a side file.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Makes a file readable by its owner only.
pub(crate) fn make_private(file: &Path) -> io::Result<()> {
    if fs::metadata(file)?.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))
}
