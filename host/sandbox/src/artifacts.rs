//! Machine code that was compiled before, on disk.
//!
//! Whoever can write here can run anything as this host: the folder belongs to this user alone, and what is in it is
//! authenticated with a key of this installation before it is mapped. A file is named after the plugin's SHA-256, the
//! engine it was compiled for and the HMAC of its content under those names, so that code and proof appear together, by
//! one rename. A file is never written to again: it may be mapped.

use hmac::{Hmac, Mac};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
use sha2::Sha256;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::NamedTempFile;
use wasmtime::Engine;

/// Bytes of all files; the ones that were used longest ago go first.
const ALL: u64 = 2 << 30;
const EXTENSION: &str = "cwasm";
const DRAFT: &str = "draft";
/// Why a plugin was refused; a few bytes each.
const REFUSAL: &str = "refusal";
/// Refusals that are kept; the oldest go first.
const REFUSALS: usize = 4096;
/// The longest refusal, in bytes.
const LONGEST_REFUSAL: u64 = 4096;
/// A child that compiles ends within this.
const OLD: Duration = Duration::from_secs(300);

/// A folder of machine code.
#[derive(Debug)]
pub(crate) struct Artifacts {
    folder: PathBuf,
    key: [u8; 32],
}

/// What a plugin's machine code for an engine is called, but for the proof.
#[derive(Debug)]
pub(crate) struct Name(String);

/// A file that is being written.
pub(crate) struct Draft(NamedTempFile);

impl Artifacts {
    pub(crate) fn open(folder: &Path, key: [u8; 32]) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let found = fs::symlink_metadata(folder)?;
        if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(format!("{} is no folder of this user's own", folder.display())));
        }
        if found.mode() & 0o077 != 0 {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        }
        let artifacts = Self { folder: folder.to_owned(), key };
        artifacts.clear_drafts();
        Ok(artifacts)
    }

    /// Removes what was being written when its writer ended.
    fn clear_drafts(&self) {
        for path in self.files(DRAFT) {
            let age = fs::metadata(&path).and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
            // A younger draft may belong to a command that is compiling now.
            if age.is_none_or(|age| age > OLD) {
                let _ = fs::remove_file(&path);
            }
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn name(&self, plugin: [u8; 32], engine: &Engine) -> Name {
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Name(format!("{}-{:016x}", hex(&plugin), hasher.finish()))
    }

    /// The file of this name, if it is what this installation wrote. One that is not is removed, and the log says so.
    pub(crate) fn find(&self, name: &Name) -> Option<PathBuf> {
        for path in self.files(EXTENSION) {
            let Some(file) = path.file_name().and_then(|file| file.to_str()) else { continue };
            let Some(proof) = file.strip_prefix(&name.0).and_then(|rest| rest.strip_prefix('-')) else { continue };
            let proof = proof.strip_suffix(EXTENSION).and_then(|proof| proof.strip_suffix('.'));
            if proof.is_some_and(|proof| self.proof(name, &path).is_ok_and(|expected| expected == proof)) {
                used(&path);
                return Some(path);
            }
            tracing::warn!("{} is not what this host wrote; it is removed and compiled anew", path.display());
            let _ = fs::remove_file(&path);
        }
        None
    }

    /// The HMAC of a file's content under its name.
    fn proof(&self, name: &Name, path: &Path) -> io::Result<String> {
        self.proof_of(name, OpenOptions::new().read(true).custom_flags(nofollow()).open(path)?)
    }

    fn proof_of(&self, name: &Name, mut file: impl Read) -> io::Result<String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key of any length is one");
        mac.update(name.0.as_bytes());
        mac.update(&[0]);
        let mut piece = vec![0; 1 << 16];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(hex(&mac.finalize().into_bytes())),
                read => mac.update(&piece[..read]),
            }
        }
    }

    /// Why a plugin was refused by this version, where that is known.
    pub(crate) fn refusal(&self, name: &Name) -> Option<String> {
        let mut text = String::new();
        File::open(self.refusal_path(name)).ok()?.take(LONGEST_REFUSAL).read_to_string(&mut text).ok()?;
        Some(text)
    }

    pub(crate) fn keep_refusal(&self, name: &Name, text: &str) -> io::Result<()> {
        let mut draft = self.draft()?.0;
        draft.write_all(text.as_bytes())?;
        draft.persist(self.refusal_path(name)).map_err(|error| error.error)?;
        let mut kept = self.files(REFUSAL);
        if kept.len() > REFUSALS {
            kept.sort_by_key(|path| fs::metadata(path).and_then(|found| found.modified()).ok());
            kept.truncate(kept.len() - REFUSALS);
            kept.iter().for_each(|path| drop(fs::remove_file(path)));
        }
        Ok(())
    }

    fn refusal_path(&self, name: &Name) -> PathBuf {
        self.folder.join(format!("{}-{}.{REFUSAL}", name.0, env!("CARGO_PKG_VERSION")))
    }

    /// A file to write to, under a name that nobody else has, which nobody reads before it is kept.
    pub(crate) fn draft(&self) -> io::Result<Draft> {
        let suffix = format!(".{DRAFT}");
        tempfile::Builder::new().suffix(&suffix).tempfile_in(&self.folder).map(Draft)
    }

    fn files(&self, wanted: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == wanted)).collect()
    }

    /// Removes what was used longest ago while there is too much.
    fn prune(&self, kept: &Path) {
        let age = |path: &Path| fs::metadata(path).and_then(|found| Ok((found.modified()?, found.len()))).ok();
        let mut files: Vec<_> =
            self.files(EXTENSION).into_iter().filter_map(|path| Some((age(&path)?, path))).collect();
        files.sort();
        let mut all: u64 = files.iter().map(|((_, size), _)| size).sum();
        for ((_, size), path) in files {
            if all <= ALL {
                return;
            }
            if path != kept && fs::remove_file(&path).is_ok() {
                all -= size;
            }
        }
    }
}

impl Draft {
    /// Where the draft is written.
    pub(crate) fn output(&self) -> io::Result<File> {
        self.0.as_file().try_clone()
    }

    /// Makes it a file of this name, all at once. What is proven is what was written here, whatever its name leads to now.
    pub(crate) fn keep(self, artifacts: &Artifacts, name: &Name) -> io::Result<PathBuf> {
        let mut file = self.0.as_file();
        file.set_permissions(fs::Permissions::from_mode(0o400))?;
        file.sync_all()?;
        file.seek(SeekFrom::Start(0))?;
        let path = artifacts.folder.join(format!("{}-{}.{EXTENSION}", name.0, artifacts.proof_of(name, file)?));
        self.0.persist(&path).map_err(|error| error.error)?;
        artifacts.prune(&path);
        Ok(path)
    }
}

/// Notes that a file was used now, by the kernel's clock; that decides nothing but what goes first.
fn used(path: &Path) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    if let Ok(file) = File::open(path) {
        let _ = futimens(file, &Timestamps { last_access: now, last_modification: now });
    }
}

fn nofollow() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn artifacts(key: u8) -> (tempfile::TempDir, Artifacts) {
        let folder = tempfile::tempdir().unwrap();
        let opened = Artifacts::open(&folder.path().join("compiled"), [key; 32]).unwrap();
        (folder, opened)
    }

    fn keep(artifacts: &Artifacts, name: &Name, content: &[u8]) -> PathBuf {
        let draft = artifacts.draft().unwrap();
        draft.output().unwrap().write_all(content).unwrap();
        draft.keep(artifacts, name).unwrap()
    }

    #[test]
    fn what_was_kept_is_found_and_nothing_else() {
        let (_folder, artifacts) = artifacts(1);
        let name = artifacts.name([7; 32], &Engine::default());
        assert_eq!(artifacts.find(&name), None);
        let path = keep(&artifacts, &name, b"code");
        assert_eq!(artifacts.find(&name), Some(path.clone()));
        assert_eq!(artifacts.find(&artifacts.name([8; 32], &Engine::default())), None);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o400);
        assert_eq!(fs::metadata(artifacts.folder()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(artifacts.folder()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_flipped_bit_a_foreign_file_and_another_key_are_not_taken() {
        let (folder, artifacts) = artifacts(1);
        let name = artifacts.name([7; 32], &Engine::default());
        let path = keep(&artifacts, &name, b"code");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, b"cod3").unwrap();
        assert_eq!(artifacts.find(&name), None);
        assert!(!path.exists(), "it is removed");
        fs::write(artifacts.folder().join(format!("{}-{}.cwasm", name.0, "0".repeat(64))), b"code").unwrap();
        assert_eq!(artifacts.find(&name), None);
        keep(&artifacts, &name, b"code");
        let other = Artifacts::open(&folder.path().join("compiled"), [2; 32]).unwrap();
        assert_eq!(other.find(&name), None, "another installation's");
    }

    #[test]
    fn a_link_is_not_followed_and_an_open_folder_is_closed() {
        let (folder, artifacts) = artifacts(1);
        let name = artifacts.name([7; 32], &Engine::default());
        let path = keep(&artifacts, &name, b"code");
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(artifacts.find(&name), None);
        fs::set_permissions(artifacts.folder(), fs::Permissions::from_mode(0o777)).unwrap();
        let again = Artifacts::open(artifacts.folder(), [1; 32]).unwrap();
        assert_eq!(fs::metadata(again.folder()).unwrap().mode() & 0o777, 0o700);
    }
}
