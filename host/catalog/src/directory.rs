//! Looking at the plugin directory.
//!
//! Looking works on every file system, unlike being told: events of network file systems and bind mounts never come. A
//! look costs one listing and a `stat` for each file. A file is read when it has stood still from one look to the next;
//! whatever writes in place, slowly, is waited for that way, and whatever renames is taken with the second look.
//!
//! Links are followed, as mounted volumes need it: whoever can write here can make this host run a plugin anyway.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The largest plugin file, and a byte more to find out that one is larger.
const LARGEST: u64 = 64 << 20;
/// Files that are looked at; the rest, by name, are left out, and the log says so.
const FILES: usize = 4096;
const EXTENSION: &str = ".wasm";

/// What makes a file another one.
type Stamp = [i64; 7];

/// Of what cannot be asked about.
const NOWHERE: Stamp = [0; 7];

/// The directory as it was at the last look.
#[derive(Debug)]
pub(super) struct PluginDirectory {
    path: PathBuf,
    files: BTreeMap<OsString, Seen>,
    trouble: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Nothing when the look did not find it; gone at the second such look.
    stamp: Option<Stamp>,
    /// What it was when it was read last.
    read: Option<Stamp>,
}

/// What a look found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// Files to be read: they are new or others now, and stood still.
    pub ready: Vec<OsString>,
    /// Files that are gone.
    pub gone: Vec<OsString>,
}

impl PluginDirectory {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), files: BTreeMap::new(), trouble: None }
    }

    /// Everything that is there, without waiting for it to stand still: a start must not wait, and what is half written
    /// is read again when it changes.
    pub(super) fn first_scan(&mut self) -> Vec<OsString> {
        self.scan();
        self.files.keys().cloned().collect()
    }

    /// Looks again.
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
            // Whoever replaces a file by removing it first has until the next look.
            let missed_before = seen.stamp.take().is_none();
            if missed_before && seen.read.is_some() {
                scan.gone.push(name.clone());
            }
            !missed_before
        });
        scan
    }

    /// Reads a file, to be judged by what was read. Nothing when it was no longer there or changed meanwhile; in one
    /// sentence, why it cannot be a plugin.
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
        // It goes on being written, or went; the next looks will find out. One that was never there leads nowhere.
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

    /// Reads it at the next look, whether it has changed or not.
    pub(super) fn read_again(&mut self, name: &str) {
        if let Some(seen) = self.files.get_mut(&OsString::from(name)) {
            seen.read = None;
        }
    }

    /// What is there; nothing where the directory cannot be looked at: then everything stays as it is.
    fn list(&mut self) -> Option<BTreeMap<OsString, Stamp>> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.trouble = None;
                return Some(BTreeMap::new());
            }
            Err(error) => return self.troubled(format!("it cannot be read ({error})")),
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => names.push(entry.file_name()),
                Err(error) => return self.troubled(format!("it cannot be read to its end ({error})")),
            }
        }
        // A name that is no UTF-8 could be told from no other such name; one with a line break would forge lines of the log.
        names.retain(|name: &OsString| name.to_str().is_some_and(is_plugin));
        // What is known already comes first, so that nobody takes its place.
        names.sort_by_key(|name| (!self.files.contains_key(name), name.clone()));
        if names.len() > FILES {
            let surplus = names.len() - FILES;
            self.trouble(format!("it holds more than {FILES} plugins; the last {surplus} by name are left out"));
            names.truncate(FILES);
        } else {
            self.trouble = None;
        }
        // What cannot be asked about is read, and refused with the reason.
        let stamp_of = |name: &OsString| fs::metadata(self.path.join(name)).map_or(NOWHERE, |found| stamp(&found));
        Some(names.into_iter().map(|name| (name.clone(), stamp_of(&name))).collect())
    }

    fn troubled<T>(&mut self, what: String) -> Option<T> {
        self.trouble(format!("{what}; plugins stay as they are"));
        None
    }

    /// Says what is wrong, once.
    fn trouble(&mut self, what: String) {
        if self.trouble.as_ref() != Some(&what) {
            tracing::warn!("the plugin directory {}: {what}", self.path.display());
            self.trouble = Some(what);
        }
    }
}

/// Hidden files are other programs' drafts; names with control characters are never meant.
fn is_plugin(name: &str) -> bool {
    let is_odd = |c: char| c.is_control() || model::is_invisible(c);
    !name.starts_with('.') && !name.contains(is_odd) && name.to_ascii_lowercase().ends_with(EXTENSION)
}

/// Its kind, size and place, and when its content and its name were changed.
fn stamp(found: &Metadata) -> Stamp {
    let size = i64::try_from(found.size()).unwrap_or(i64::MAX);
    let inode = found.ino().cast_signed() ^ found.dev().cast_signed().rotate_left(32);
    let [modified, changed] = [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())];
    [i64::from(found.is_file()), size, inode, modified.0, modified.1, changed.0, changed.1]
}

/// A plugin's bytes, read once: what is judged is what runs.
pub fn read(file: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "it is not there, or a link that leads nowhere: check the path".to_owned(),
        _ => format!("it cannot be read: {error}"),
    };
    // Opening a pipe waits for whoever writes to it, unless it is told not to.
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut opened: File = OpenOptions::new().read(true).custom_flags(nonblock).open(file).map_err(unreadable)?;
    if !opened.metadata().map_err(unreadable)?.is_file() {
        return Err("it is no ordinary file: copy the plugin itself here".to_owned());
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
    fn a_file_is_read_once_it_has_stood_still_and_again_when_it_changes() {
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
        // The same size and the same times, as far as a user can set them.
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
    fn a_file_is_gone_at_the_second_look_and_the_folder_may_be_too() {
        let (place, mut folder) = folder();
        let file = place.path().join("a.wasm");
        fs::write(&file, "one").unwrap();
        folder.first_scan();
        folder.read(&"a.wasm".into());
        fs::remove_file(&file).unwrap();
        assert_eq!(folder.scan(), Scan::default());
        fs::write(&file, "two").unwrap();
        assert_eq!(folder.scan(), Scan::default(), "it came back in time");
        assert_eq!(names(&folder.scan().ready), ["a.wasm"]);
        folder.read(&"a.wasm".into());
        fs::remove_dir_all(place.path()).unwrap();
        assert_eq!(folder.scan(), Scan::default());
        assert_eq!(names(&folder.scan().gone), ["a.wasm"]);
        assert_eq!(folder.scan(), Scan::default());
    }

    #[test]
    fn what_is_no_ordinary_file_is_refused_and_what_is_no_plugin_is_not_looked_at() {
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
                other => panic!("{other} is not looked at"),
            }
        }
        assert_eq!(found.len(), 6);
    }
}
