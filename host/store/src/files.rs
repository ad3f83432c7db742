//! Checks that the files of the open database are still those at its path.
//!
//! SQLite continues to write into a file that was deleted or replaced, and everything that is committed there is lost
//! when the process ends. SQLite does not detect this. Therefore the two files are checked after each commit and every
//! few seconds.
//!
//! The database file is opened here once and stays open, because closing any descriptor of it drops SQLite's locks.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The first bytes of every SQLite database (sqlite.org/fileformat2.html, section 1.3).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The identity of a file, independent of its path: device and inode.
type Identity = (u64, u64);

/// The files of an open database.
#[derive(Debug)]
pub(crate) struct Files {
    path: PathBuf,
    wal_path: PathBuf,
    database: Identity,
    /// `None` until the first commit creates the file.
    wal: Option<Identity>,
    file: File,
    length: u64,
}

/// The result of a check of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The files are unchanged.
    Same,
    /// The write-ahead log was deleted or replaced; its content can still be read.
    WalGone,
    /// The database file was deleted; its content can still be read.
    Deleted,
    /// Another file is at its path.
    Replaced,
    /// The database file was truncated or overwritten.
    Damaged,
}

impl Files {
    /// Opens the files of the database at `path`.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let found = file.metadata()?;
        let wal_path = crate::path::beside(path, "-wal");
        let wal = std::fs::metadata(&wal_path).ok().as_ref().map(identity);
        Ok(Self { path: path.to_owned(), wal_path, database: identity(&found), wal, length: found.len(), file })
    }

    /// Compares the open files with those at their paths.
    pub(crate) fn check(&mut self) -> Found {
        match std::fs::metadata(&self.path) {
            Ok(found) if identity(&found) == self.database => {
                if found.len() < self.length || !self.is_database() {
                    return Found::Damaged;
                }
                self.length = found.len();
            }
            Ok(_) => return Found::Replaced,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Deleted,
            // A directory that cannot be read at the moment does not mean that the file in it changed.
            Err(_) => return Found::Same,
        }
        let wal = std::fs::metadata(&self.wal_path).ok().as_ref().map(identity);
        match (self.wal, wal) {
            (None, found) => self.wal = found,
            (Some(known), found) if found != Some(known) => return Found::WalGone,
            _ => {}
        }
        Found::Same
    }

    fn is_database(&self) -> bool {
        let mut first = [0; 16];
        // SQLite reports disk errors.
        self.file.read_exact_at(&mut first, 0).is_err() || first == *MAGIC
    }
}

fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}
