//! Stores compiled machine code on disk.
//!
//! Everyone who can write to this folder can run any code as this host. So the folder belongs to this user alone, and
//! each file is authenticated with a key of this installation before it is mapped. The file name consists of the
//! plugin's SHA-256, the engine that the code is for, and an HMAC of this name and the content. So code and proof
//! appear together with one rename. A file is never modified after that, because it may be mapped.

use hmac::{Hmac, Mac};
use model::hex;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
use sha2::Sha256;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::NamedTempFile;
use wasmtime::Engine;

/// Maximum size of all files in bytes. The least recently used files are removed first.
const MAX_TOTAL_BYTES: u64 = 2 << 30;
const EXTENSION: &str = "cwasm";
const DRAFT: &str = "draft";
/// Extension of the files that contain why a plugin was refused, a few bytes each.
const REFUSAL: &str = "refusal";
/// Maximum number of stored refusals. The oldest are removed first.
const REFUSALS: usize = 4096;
/// Maximum length of a stored refusal in bytes.
const LONGEST_REFUSAL: u64 = 4096;
/// Age after which a draft is removed. A compiling child ends earlier.
const MAX_DRAFT_AGE: Duration = Duration::from_secs(300);

/// A folder with compiled machine code.
#[derive(Debug)]
pub(crate) struct Artifacts {
    folder: PathBuf,
    key: [u8; 32],
}

/// The file name of a plugin's machine code for an engine, without the proof.
#[derive(Debug)]
pub(crate) struct Name(String);

/// A temporary file for machine code.
pub(crate) struct Draft(NamedTempFile);

impl Artifacts {
    pub(crate) fn open(folder: &Path, key: [u8; 32]) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let found = fs::symlink_metadata(folder)?;
        if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(format!("{} is not a folder that belongs to this user", folder.display())));
        }
        if found.mode() & 0o077 != 0 {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        }
        let artifacts = Self { folder: folder.to_owned(), key };
        artifacts.clear_drafts();
        Ok(artifacts)
    }

    /// Removes drafts whose writer ended.
    fn clear_drafts(&self) {
        for path in self.files(DRAFT) {
            let age = fs::metadata(&path).and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
            // A younger draft may belong to a command that is compiling now.
            if age.is_none_or(|age| age > MAX_DRAFT_AGE) {
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

    /// Returns the file with this name if this installation wrote it. A file with a wrong proof is removed with a
    /// warning in the log.
    pub(crate) fn find(&self, name: &Name) -> Option<PathBuf> {
        for path in self.files(EXTENSION) {
            let Some(file) = path.file_name().and_then(|file| file.to_str()) else { continue };
            let Some(proof) = file.strip_prefix(&name.0).and_then(|rest| rest.strip_prefix('-')) else { continue };
            let proof = proof.strip_suffix(EXTENSION).and_then(|proof| proof.strip_suffix('.'));
            if proof.is_some_and(|proof| self.proof(name, &path).is_ok_and(|expected| expected == proof)) {
                used(&path);
                return Some(path);
            }
            tracing::warn!("{} was not written by this host; it is removed and compiled again", path.display());
            let _ = fs::remove_file(&path);
        }
        None
    }

    /// Returns the HMAC of a file's name and content.
    fn proof(&self, name: &Name, path: &Path) -> io::Result<String> {
        self.proof_of(name, OpenOptions::new().read(true).custom_flags(nofollow()).open(path)?)
    }

    fn proof_of(&self, name: &Name, mut file: impl Read) -> io::Result<String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC accepts keys of any length");
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

    /// Returns why this version refused a plugin. `None` if no refusal is stored.
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

    /// Creates a draft with a unique name. It is not read before [`Draft::keep`].
    pub(crate) fn draft(&self) -> io::Result<Draft> {
        let suffix = format!(".{DRAFT}");
        tempfile::Builder::new().suffix(&suffix).tempfile_in(&self.folder).map(Draft)
    }

    fn files(&self, wanted: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == wanted)).collect()
    }

    /// Removes the least recently used files while the total size exceeds the limit. `kept` is never removed.
    fn prune(&self, kept: &Path) {
        let age = |path: &Path| fs::metadata(path).and_then(|found| Ok((found.modified()?, found.len()))).ok();
        let mut files: Vec<_> =
            self.files(EXTENSION).into_iter().filter_map(|path| Some((age(&path)?, path))).collect();
        files.sort();
        let mut all: u64 = files.iter().map(|((_, size), _)| size).sum();
        for ((_, size), path) in files {
            if all <= MAX_TOTAL_BYTES {
                return;
            }
            if path != kept && fs::remove_file(&path).is_ok() {
                all -= size;
            }
        }
    }
}

impl Draft {
    /// Returns a handle for writing the draft.
    pub(crate) fn output(&self) -> io::Result<File> {
        self.0.as_file().try_clone()
    }

    /// Renames the draft to its final name. The proof is computed from the open file, so a change of the path in the
    /// meantime has no effect.
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

/// Sets the modification time of a file to now, by the kernel's clock. It only decides which files are removed first.
fn used(path: &Path) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    if let Ok(file) = File::open(path) {
        let _ = futimens(file, &Timestamps { last_access: now, last_modification: now });
    }
}

fn nofollow() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0)
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
    fn only_stored_files_are_found() {
        let (_folder, artifacts) = artifacts(1);
        let name = artifacts.name([7; 32], &Engine::default());
        assert_eq!(artifacts.find(&name), None);
        let path = keep(&artifacts, &name, b"code");
        assert_eq!(artifacts.find(&name), Some(path.clone()));
        assert_eq!(artifacts.find(&artifacts.name([8; 32], &Engine::default())), None);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o400);
        assert_eq!(fs::metadata(artifacts.folder()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(artifacts.folder()).unwrap().count(), 1, "no draft remains");
    }

    #[test]
    fn files_with_a_wrong_proof_are_not_used() {
        let (folder, artifacts) = artifacts(1);
        let name = artifacts.name([7; 32], &Engine::default());
        let path = keep(&artifacts, &name, b"code");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, b"cod3").unwrap();
        assert_eq!(artifacts.find(&name), None);
        assert!(!path.exists(), "the changed file is removed");
        fs::write(artifacts.folder().join(format!("{}-{}.cwasm", name.0, "0".repeat(64))), b"code").unwrap();
        assert_eq!(artifacts.find(&name), None);
        keep(&artifacts, &name, b"code");
        let other = Artifacts::open(&folder.path().join("compiled"), [2; 32]).unwrap();
        assert_eq!(other.find(&name), None, "the key belongs to another installation");
    }

    #[test]
    fn links_are_not_followed_and_folder_permissions_are_restricted() {
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
