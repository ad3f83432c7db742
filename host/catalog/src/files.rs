//! Adds and removes files of the plugin directory for a user who has no access to it.
//!
//! The watcher finds and judges such a file as if a user had copied it: there is one path from a file to a plugin.

use crate::directory::{LARGEST, is_plugin};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use tempfile::NamedTempFile;

/// Why a file was not added or removed; one sentence.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The name cannot be that of a plugin file.
    #[error("{0}")]
    Name(String),
    /// The content cannot be a plugin.
    #[error("{0}")]
    Content(String),
    /// No such file exists.
    #[error("{0}")]
    Missing(String),
    /// The directory cannot be changed.
    #[error("{0}")]
    Directory(String),
}

/// Writes a file into the plugin directory. The watcher never sees a part of it, and it is on disk on return.
///
/// # Errors
/// If the name does not end in `.wasm` or leads elsewhere, the content is not WebAssembly or too large, or the
/// directory cannot be written.
pub fn add_file(directory: &Path, name: &str, content: &[u8]) -> Result<(), FileError> {
    /// The first bytes of every WebAssembly file.
    const MAGIC: &[u8] = b"\0asm";
    check(name)?;
    if !is_portable(name) {
        return Err(FileError::Name(format!(
            "{name:?} has a character that is not allowed in a new file: use letters, digits, '.', '_' and '-'"
        )));
    }
    if content.is_empty() {
        return Err(FileError::Content("the file is empty: send the plugin as the request's body".to_owned()));
    }
    if !content.starts_with(MAGIC) {
        return Err(FileError::Content("this is not a WebAssembly file: send the .wasm that was built".to_owned()));
    }
    if content.len() as u64 > LARGEST {
        return Err(FileError::Content(format!("the file is larger than {} MiB, the limit", LARGEST >> 20)));
    }
    let write = || -> io::Result<()> {
        fs::create_dir_all(directory)?;
        // A hidden file is a draft, which the watcher ignores.
        let mut draft = NamedTempFile::new_in(directory)?;
        draft.write_all(content)?;
        draft.as_file().sync_all()?;
        draft.persist(directory.join(name)).map_err(|error| error.error)?;
        fs::File::open(directory)?.sync_all()
    };
    write().map_err(|error| unwritable(directory, &error))
}

/// Removes a file from the plugin directory.
///
/// # Errors
/// If there is no such file, the name leads elsewhere, or the directory cannot be written.
pub fn remove_file(directory: &Path, name: &str) -> Result<(), FileError> {
    check(name)?;
    fs::remove_file(directory.join(name)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => FileError::Missing(format!("the plugin directory contains no file {name:?}")),
        _ => unwritable(directory, &error),
    })
}

fn unwritable(directory: &Path, error: &io::Error) -> FileError {
    FileError::Directory(format!(
        "the plugin directory {} cannot be written ({error}): check its permissions, or copy the file there yourself",
        directory.display()
    ))
}

/// Whether a name has only characters that every file system and every shell takes.
fn is_portable(name: &str) -> bool {
    !name.starts_with('-')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn check(name: &str) -> Result<(), FileError> {
    /// The longest file name of the usual file systems in bytes.
    const LONGEST: usize = 255;
    let is_one_name = !name.contains(['/', '\\']) && name.len() <= LONGEST;
    match is_one_name && is_plugin(name) && name.ends_with(".wasm") && name != ".wasm" {
        true => Ok(()),
        false => Err(FileError::Name(format!(
            "{name:?} is not the name of a plugin file: use at most {LONGEST} visible characters that end in .wasm, \
             without / or a dot at the start"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WASM: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn a_file_is_added_replaced_and_removed_and_nothing_else_is_left() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("plugins");
        add_file(&directory, "a.wasm", WASM).unwrap();
        let longer = [WASM, b"more"].concat();
        add_file(&directory, "a.wasm", &longer).unwrap();
        assert_eq!(fs::read(directory.join("a.wasm")).unwrap(), longer);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        remove_file(&directory, "a.wasm").unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        assert!(matches!(remove_file(&directory, "a.wasm"), Err(FileError::Missing(_))));
    }

    #[test]
    fn names_that_lead_elsewhere_and_content_that_is_no_plugin_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("plugins");
        let long = format!("{}.wasm", "x".repeat(251));
        let names =
            ["", ".wasm", "../a.wasm", "/a.wasm", "a/b.wasm", "a\\b.wasm", ".a.wasm", "a.WASM", "a.txt", "a\n.wasm"];
        for name in names.into_iter().chain([long.as_str()]) {
            assert!(matches!(add_file(&directory, name, WASM), Err(FileError::Name(_))), "{name:?}");
            assert!(matches!(remove_file(&directory, name), Err(FileError::Name(_))), "{name:?}");
        }
        for name in ["é.wasm", "a b.wasm", "-a.wasm"] {
            assert!(matches!(add_file(&directory, name, WASM), Err(FileError::Name(_))), "{name:?}");
            // A user may have copied it.
            assert!(matches!(remove_file(&directory, name), Err(FileError::Missing(_))), "{name:?}");
        }
        for content in [&b""[..], b"#!/bin/sh", &[0; 16]] {
            assert!(matches!(add_file(&directory, "a.wasm", content), Err(FileError::Content(_))));
        }
        assert!(!directory.exists());
    }

    #[test]
    fn a_directory_that_is_a_file_is_reported_with_its_path() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("plugins");
        fs::write(&directory, "").unwrap();
        let Err(FileError::Directory(why)) = add_file(&directory, "a.wasm", WASM) else { panic!("it must fail") };
        assert!(why.contains(directory.to_str().unwrap()), "{why}");
    }
}
