//! The folder with the captured secrets that survive a restart.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tempfile::NamedTempFile;

/// The first bytes of a file.
pub(super) const MAGIC: &[u8] = b"polliwog captured secrets 1\n";
/// The age after which a file has only values that have expired. A value is kept for a week at most.
const OLD: Duration = Duration::from_secs(8 * 24 * 60 * 60);
/// Maximum length of a file in bytes: 16 values of 4 KiB, and what JSON adds.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Where durable values are stored.
#[derive(Clone)]
pub struct DurableFolder {
    /// The folder. It is created.
    pub path: PathBuf,
    /// A secret of this installation.
    pub key: [u8; 32],
}

impl fmt::Debug for DurableFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

/// The folder with the files of all targets.
pub(super) struct Folder {
    pub path: PathBuf,
    key: LessSafeKey,
    /// The key of the digests of what files are bound to.
    pub binding: [u8; 32],
    /// The names of the files.
    files: Mutex<BTreeSet<String>>,
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
pub(super) struct Content {
    pub bound: String,
    pub values: Vec<Stored>,
}

/// A durable value.
#[derive(Serialize, Deserialize)]
pub(super) struct Stored {
    pub name: String,
    pub value: String,
    /// Milliseconds since the Unix epoch.
    pub expires: i64,
}

impl Folder {
    pub(super) fn open(DurableFolder { path, key }: &DurableFolder) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        let derived = |of: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), of);
        let sealing = UnboundKey::new(&CHACHA20_POLY1305, derived(MAGIC).as_ref());
        let sealing = LessSafeKey::new(sealing.map_err(|_| io::Error::other("not a key"))?);
        let mut binding = [0; 32];
        binding.copy_from_slice(derived(b"what captured secrets are bound to").as_ref());
        let mut files = BTreeSet::new();
        for entry in fs::read_dir(path)?.flatten() {
            let age = entry.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
            match entry.file_name().into_string() {
                Ok(name) if age.is_none_or(|age| age < OLD) => drop(files.insert(name)),
                // Of a target that was removed while no host ran, or a draft.
                _ => drop(fs::remove_file(entry.path())),
            }
        }
        Ok(Self { path: path.clone(), key: sealing, binding, files: Mutex::new(files) })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    pub(super) fn remove(&self, name: &str) {
        if !self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(name) {
            return;
        }
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{} with captured secrets cannot be removed ({error}): remove it", path.display());
            }
            _ => {}
        }
    }

    pub(super) fn write(&self, name: &str, mut text: Vec<u8>, is_closed: &AtomicBool) -> io::Result<()> {
        let mut nonce = [0; NONCE_LEN];
        let failed = |_| io::Error::other("it cannot be encrypted");
        SystemRandom::new().fill(&mut nonce).map_err(failed)?;
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(unique, Aad::from(name), &mut text).map_err(failed)?;
        let mut draft = NamedTempFile::new_in(&self.path)?;
        for part in [MAGIC, &nonce, &text] {
            draft.write_all(part)?;
        }
        draft.as_file().sync_all()?;
        {
            // A file that is removed at the same time must not come back.
            let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            if is_closed.load(Ordering::Acquire) {
                return Ok(());
            }
            draft.persist(self.path.join(name)).map_err(|error| error.error)?;
            files.insert(name.to_owned());
        }
        File::open(&self.path)?.sync_all()
    }

    pub(super) fn read(&self, name: &str) -> io::Result<Content> {
        let invalid = || io::Error::other("it was not written by this installation");
        let file = read_bounded(&self.path.join(name))?;
        let parts = file.strip_prefix(MAGIC).and_then(|rest| rest.split_at_checked(NONCE_LEN));
        let (nonce, sealed) = parts.ok_or_else(invalid)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| invalid())?;
        let mut sealed = sealed.to_vec();
        let text = self.key.open_in_place(nonce, Aad::from(name), &mut sealed).map_err(|_| invalid())?;
        Ok(serde_json::from_slice(text)?)
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("it is too long"));
    }
    fs::read(path)
}
