//! Polls the plugin directory for changes.
//!
//! Polling works on every file system; network file systems and bind mounts do not deliver file events. A scan costs
//! one listing and a `stat` per file. A file is read when it is unchanged from one scan to the next. A file that is
//! written slowly in place is therefore read only when it is complete, and a renamed file is read at the second scan.
//!
//! Symbolic links are followed, because mounted volumes need them. They add no risk: a user who can write to this
//! directory can make the host run a plugin anyway.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The maximum size of a plugin file in bytes.
pub(super) const LARGEST: u64 = 64 << 20;
/// The maximum number of files; the last ones by name are ignored, with a warning in the log.
const FILES: usize = 4096;
const EXTENSION: &str = ".wasm";

/// The metadata that identify a version of a file.
type Stamp = [i64; 7];

/// The stamp of a file whose metadata cannot be read.
const NOWHERE: Stamp = [0; 7];

/// The plugin directory with the state of the last scan.
#[derive(Debug)]
pub(super) struct PluginDirectory {
    path: PathBuf,
    files: BTreeMap<OsString, Seen>,
    trouble: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// `None` if the last scan did not find the file. It counts as removed at the second such scan.
    stamp: Option<Stamp>,
    /// The stamp at the last read.
    read: Option<Stamp>,
}

/// The result of a scan.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// Files to read: new or changed files that are unchanged since the previous scan.
    pub ready: Vec<OsString>,
    /// Removed files.
    pub gone: Vec<OsString>,
}

impl PluginDirectory {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), files: BTreeMap::new(), trouble: None }
    }

    /// Returns all files at a start, without waiting until they are unchanged, so that the start is not delayed. A file
    /// that is only partly written is read again when it changes.
    pub(super) fn first_scan(&mut self) -> Vec<OsString> {
        self.scan();
        self.files.keys().cloned().collect()
    }

    /// Scans the directory.
    pub(super) fn scan(&mut self) -> Scan {
        let Some(found) = self.list() else { return Scan::default() };
        let mut scan = Scan::default();
        for (name, stamp) in &found {
            let seen = self.files.entry(name.clone()).or_insert(Seen { stamp: None, read: None });
            if seen.stamp == Some(*stamp) && seen.read != Some(*stamp) {
                scan.ready.push(name.clone());
            }
            seen.stamp = Some(*stamp);
        }
        self.files.retain(|name, seen| {
            if found.contains_key(name) {
                return true;
            }
            // A program that replaces a file by removing it first has time until the next scan.
            let missed_before = seen.stamp.take().is_none();
            if missed_before && seen.read.is_some() {
                scan.gone.push(name.clone());
            }
            !missed_before
        });
        scan
    }

    /// Reads a file. `None` if the file was removed or changed during the read. Fails with one sentence if the file
    /// cannot be a plugin.
    pub(super) fn read(&mut self, name: &OsString) -> Option<Result<Vec<u8>, String>> {
        let path = self.path.join(name);
        let stamp = fs::metadata(&path).map_or(0, |found| stamp(&found)[0]);
        let result = if name.to_string_lossy().ends_with(EXTENSION) {
            read(&path)
        } else {
            Err(format!("the file name must end in lower-case {EXTENSION}: rename it"))
        };
        let seen = self.files.get_mut(name)?;
        let after = fs::metadata(&path).ok().map(|found| self::stamp(&found));
        // The file is still being written or was removed; the next scans detect that. A file without metadata is a
        // dangling link.
        let same = match after {
            Some(after) => seen.stamp == Some(after) && after[0] == stamp,
            None => seen.stamp == Some(NOWHERE),
        };
        if !same {
            seen.stamp = after;
            return None;
        }
        seen.read = seen.stamp;
        Some(result)
    }

    /// Makes the next scan read a file even if it is unchanged.
    pub(super) fn read_again(&mut self, name: &str) {
        if let Some(seen) = self.files.get_mut(&OsString::from(name)) {
            seen.read = None;
        }
    }

    /// Lists the plugin files. `None` if the directory cannot be read; the plugins then stay as they are.
    fn list(&mut self) -> Option<BTreeMap<OsString, Stamp>> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.trouble = None;
                return Some(BTreeMap::new());
            }
            Err(error) => {
                return self.troubled(format!(
                    "it cannot be read ({error}): check that it is a directory and its permissions"
                ));
            }
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => names.push(entry.file_name()),
                Err(error) => return self.troubled(format!("it cannot be read completely ({error})")),
            }
        }
        // File names that are not UTF-8 cannot be distinguished; names with a line break could forge log lines. Both
        // are skipped.
        names.retain(|name: &OsString| name.to_str().is_some_and(is_plugin));
        // Known files come first, so that new files do not displace them.
        names.sort_by_key(|name| (!self.files.contains_key(name), name.clone()));
        if names.len() > FILES {
            let surplus = names.len() - FILES;
            self.trouble(format!("it contains more than {FILES} plugins; the last {surplus} by name are ignored"));
            names.truncate(FILES);
        } else {
            self.trouble = None;
        }
        // A file whose metadata cannot be read is still read, so that it is refused with a reason.
        let stamp_of = |name: &OsString| fs::metadata(self.path.join(name)).map_or(NOWHERE, |found| stamp(&found));
        Some(names.into_iter().map(|name| (name.clone(), stamp_of(&name))).collect())
    }

    fn troubled<T>(&mut self, what: String) -> Option<T> {
        self.trouble(format!("{what}; plugins stay as they are"));
        None
    }

    /// Logs a problem, once.
    fn trouble(&mut self, what: String) {
        if self.trouble.as_ref() != Some(&what) {
            tracing::warn!("the plugin directory {}: {what}", self.path.display());
            self.trouble = Some(what);
        }
    }
}

/// Returns true for plugin file names. Hidden files are drafts of other programs; control characters are never
/// intended.
pub(super) fn is_plugin(name: &str) -> bool {
    let is_odd = |c: char| c.is_control() || model::is_invisible(c);
    !name.starts_with('.') && !name.contains(is_odd) && name.to_ascii_lowercase().ends_with(EXTENSION)
}

/// Returns the stamp of a file: type, size, inode, and the times of the last changes of content and metadata.
fn stamp(found: &Metadata) -> Stamp {
    let size = i64::try_from(found.size()).unwrap_or(i64::MAX);
    let inode = found.ino().cast_signed() ^ found.dev().cast_signed().rotate_left(32);
    let [modified, changed] = [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())];
    [i64::from(found.is_file()), size, inode, modified.0, modified.1, changed.0, changed.1]
}

/// Reads the bytes of a plugin once, so that the checked bytes are the ones that run.
pub fn read(file: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "it does not exist, or it is a link that leads nowhere: check the path".to_owned(),
        _ => format!("it cannot be read: {error}"),
    };
    // Without this flag, opening a pipe waits for a writer.
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut opened: File = OpenOptions::new().read(true).custom_flags(nonblock).open(file).map_err(unreadable)?;
    if !opened.metadata().map_err(unreadable)?.is_file() {
        return Err("it is not an ordinary file: copy the plugin itself here".to_owned());
    }
    let mut bytes = Vec::new();
    opened.by_ref().take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder() -> (tempfile::TempDir, PluginDirectory) {
        let place = tempfile::tempdir().unwrap();
        let folder = PluginDirectory::new(place.path());
        (place, folder)
    }

    fn names(names: &[OsString]) -> Vec<&str> {
        names.iter().map(|name| name.to_str().unwrap()).collect()
    }

    #[test]
    fn a_file_is_read_once_it_is_unchanged_between_scans_and_again_after_a_change() {
        let (place, mut folder) = folder();
        let file = place.path().join("a.wasm");
        fs::write(&file, "one").unwrap();
        assert_eq!(folder.scan(), Scan::default(), "seen for the first time");
        fs::write(&file, "one and more").unwrap();
        assert_eq!(folder.scan(), Scan::default(), "still being written");
        let scan = folder.scan();
        assert_eq!(names(&scan.ready), ["a.wasm"]);
        assert_eq!(folder.read(&scan.ready[0]), Some(Ok(b"one and more".to_vec())));
        assert_eq!(folder.scan(), Scan::default(), "read already");
        // The same size and the same times, as far as a user can set times.
        let times = fs::metadata(&file).unwrap();
        fs::write(&file, "one and m0re").unwrap();
        File::options().write(true).open(&file).unwrap().set_modified(times.modified().unwrap()).unwrap();
        folder.scan();
        assert_eq!(names(&folder.scan().ready), ["a.wasm"]);
        folder.read(&"a.wasm".into());
        folder.read_again("a.wasm");
        assert_eq!(names(&folder.scan().ready), ["a.wasm"]);
    }

    #[test]
    fn a_file_counts_as_removed_at_the_second_scan_even_without_the_folder() {
        let (place, mut folder) = folder();
        let file = place.path().join("a.wasm");
        fs::write(&file, "one").unwrap();
        folder.first_scan();
        folder.read(&"a.wasm".into());
        fs::remove_file(&file).unwrap();
        assert_eq!(folder.scan(), Scan::default());
        fs::write(&file, "two").unwrap();
        assert_eq!(folder.scan(), Scan::default(), "the file returned in time");
        assert_eq!(names(&folder.scan().ready), ["a.wasm"]);
        folder.read(&"a.wasm".into());
        fs::remove_dir_all(place.path()).unwrap();
        assert_eq!(folder.scan(), Scan::default());
        assert_eq!(names(&folder.scan().gone), ["a.wasm"]);
        assert_eq!(folder.scan(), Scan::default());
    }

    #[test]
    fn special_files_are_refused_and_files_that_are_not_plugins_are_ignored() {
        let (place, mut folder) = folder();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("folder.wasm")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe.wasm"), 0o600.into()).unwrap();
        symlink("/dev/zero", at("device.wasm")).unwrap();
        symlink("nowhere", at("dangling.wasm")).unwrap();
        fs::write(at("real"), "content").unwrap();
        symlink("real", at("link.wasm")).unwrap();
        fs::write(at("SHOUTED.WASM"), "content").unwrap();
        for ignored in [".draft.wasm", "notes.txt", "wasm", "a.wasm.part", "a\n2026 ERROR b.wasm", "a\u{202e}b.wasm"] {
            fs::write(at(ignored), "content").unwrap();
        }
        let found = folder.first_scan();
        let verdicts: Vec<_> = found.iter().map(|name| (name.to_str().unwrap(), folder.read(name))).collect();
        for (name, verdict) in verdicts {
            let verdict = verdict.unwrap();
            match name {
                "link.wasm" => assert_eq!(verdict, Ok(b"content".to_vec())),
                "SHOUTED.WASM" => assert!(verdict.unwrap_err().contains("rename")),
                "dangling.wasm" => assert!(verdict.unwrap_err().contains("nowhere")),
                "folder.wasm" | "pipe.wasm" | "device.wasm" => assert!(verdict.unwrap_err().contains("ordinary")),
                other => panic!("{other} should be ignored"),
            }
        }
        assert_eq!(found.len(), 6);
    }
}
