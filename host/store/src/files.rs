//! Whether the files of the open database are still those at its path.
//!
//! SQLite goes on writing into a file that was deleted or replaced, and everything that is committed there is gone with the
//! process. It cannot know; so each commit is followed by a look at the two files, and by another one every few seconds.
//!
//! The database's file is opened here once and stays open: closing any descriptor of it would drop SQLite's locks.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The first bytes of every SQLite database (sqlite.org/fileformat2.html, section 1.3).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// A file, whatever it is called now: device and inode.
type Identity = (u64, u64);

/// The files of an open database.
#[derive(Debug)]
pub(crate) struct Files {
    path: PathBuf,
    wal_path: PathBuf,
    database: Identity,
    /// `None` until the first commit makes it.
    wal: Option<Identity>,
    file: File,
    length: u64,
}

/// What happened to the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// They are what they were.
    Same,
    /// The write-ahead log was deleted or replaced; what is in it can still be read.
    WalGone,
    /// The database's file was deleted; what is in it can still be read.
    Deleted,
    /// Another file is at its path.
    Replaced,
    /// It was cut short or overwritten.
    Damaged,
}

impl Files {
    /// Of the database that is at a path now.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let found = file.metadata()?;
        let wal_path = crate::path::beside(path, "-wal");
        let wal = std::fs::metadata(&wal_path).ok().as_ref().map(identity);
        Ok(Self { path: path.to_owned(), wal_path, database: identity(&found), wal, length: found.len(), file })
    }

    /// Compares them with what is at their paths now.
    pub(crate) fn look(&mut self) -> Found {
        match std::fs::metadata(&self.path) {
            Ok(found) if identity(&found) == self.database => {
                if found.len() < self.length || !self.is_database() {
                    return Found::Damaged;
                }
                self.length = found.len();
            }
            Ok(_) => return Found::Replaced,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Deleted,
            // A directory that cannot be looked at just now says nothing of the file in it.
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
        // An error of the disk is for SQLite to report.
        self.file.read_exact_at(&mut first, 0).is_err() || first == *MAGIC
    }
}

fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}
