//! Locks a database so that only one process opens it.
//!
//! A locked file next to the database also works across containers that share a volume. Because that file can be
//! deleted, a socket in the abstract namespace, named after the inode of the database, is a second lock. It cannot be
//! removed and it disappears with the process.

use std::fs::{File, TryLockError};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

/// The lock of an open database.
#[derive(Debug)]
pub(crate) struct Lock {
    file: PathBuf,
    held: File,
    /// `None` until the database file exists.
    socket: Option<(String, UnixListener)>,
}

/// Why a database cannot be locked.
#[derive(Debug)]
pub(crate) enum NotLocked {
    /// Another process holds the lock.
    InUse,
    /// The lock file cannot be used.
    Unusable { file: PathBuf, why: io::Error },
}

impl Lock {
    /// Locks the database at a path. The database need not exist.
    pub(crate) fn acquire(database: &Path) -> Result<Self, NotLocked> {
        let file = crate::path::beside(database, "-lock");
        let unusable = |why| NotLocked::Unusable { file: file.clone(), why };
        let held = File::options().create(true).append(true).open(&file).map_err(unusable)?;
        match held.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(NotLocked::InUse),
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let mut lock = Self { file, held, socket: None };
        lock.follow(database)?;
        Ok(lock)
    }

    /// Moves the socket lock to the file that is at the path now.
    pub(crate) fn follow(&mut self, database: &Path) -> Result<(), NotLocked> {
        let Ok(found) = std::fs::metadata(database) else { return Ok(()) };
        let name = format!("polliwog-database-{:x}-{:x}", found.dev(), found.ino());
        if self.socket.as_ref().is_some_and(|(held, _)| *held == name) {
            return Ok(());
        }
        let bound = SocketAddr::from_abstract_name(&name).and_then(|name| UnixListener::bind_addr(&name));
        match bound {
            Ok(socket) => self.socket = Some((name, socket)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(NotLocked::InUse),
            // Without support for such sockets the lock file is the only lock.
            Err(_) => self.socket = None,
        }
        Ok(())
    }

    /// Creates the lock file again if it was deleted. Fails if another process has created and locked it first.
    pub(crate) fn renew(&mut self) -> Result<(), NotLocked> {
        let same = |found: std::fs::Metadata| {
            let held = self.held.metadata().ok()?;
            ((held.dev(), held.ino()) == (found.dev(), found.ino())).then_some(())
        };
        if std::fs::metadata(&self.file).ok().and_then(same).is_some() {
            return Ok(());
        }
        let file = self.file.clone();
        let unusable = |why| NotLocked::Unusable { file: file.clone(), why };
        let held = File::options().create(true).append(true).open(&self.file).map_err(unusable)?;
        match held.try_lock() {
            Ok(()) => self.held = held,
            Err(TryLockError::WouldBlock) => return Err(NotLocked::InUse),
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        Ok(())
    }
}
