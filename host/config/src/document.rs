//! The configuration's file: finding it, reading it, and recognising that it changed.

use crate::written::{Invalid, Written};
use crate::{Places, Problem, TargetConfig, find};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest configuration, in bytes.
const LARGEST: u64 = 16 << 20;

/// A configuration's text and where it came from.
#[derive(Clone, Debug)]
pub struct Document {
    /// The file's name, for messages.
    pub name: String,
    /// Its text.
    pub text: Arc<str>,
    /// The file; `None` for the demo without one.
    pub path: Option<PathBuf>,
    /// The state of the file before it was read.
    pub stamp: Option<Stamp>,
}

/// Distinguishes two states of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    length: u64,
    modified: (i64, i64),
    /// When its metadata changed, such as its permissions.
    changed: (i64, i64),
}

/// How a document is read.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Where configuration and data lie.
    pub places: Places,
    /// Targets beside those of the file: the demo's. With them, the data directory is the demo's.
    pub extra: Option<Arc<[TargetConfig]>>,
}

impl Stamp {
    /// The present state of a file; `None` if there is none.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Some(Self { file: (metadata.dev(), metadata.ino()), length: metadata.len(), modified, changed })
    }
}

impl Document {
    /// Finds and reads the file.
    ///
    /// # Errors
    /// One sentence.
    pub fn find(places: &Places) -> Result<Option<Self>, String> {
        match find(places, &environment) {
            Ok(path) => Self::read(path).map(Some).map_err(|why| format!("the configuration: {why}")),
            Err(_) => Ok(None),
        }
    }

    /// A document without a file.
    pub fn without_file(name: &str) -> Self {
        Self { name: name.to_owned(), text: "".into(), path: None, stamp: None }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// One sentence.
    pub fn read(path: PathBuf) -> Result<Self, String> {
        let stamp = Stamp::of(&path);
        let text = read_text(&path, LARGEST)?.into();
        Ok(Self { name: path.display().to_string(), text, path: Some(path), stamp })
    }

    /// Parses and checks the text.
    ///
    /// # Errors
    /// Every problem, and the parts that could be read.
    pub fn parse(&self, reading: &Reading) -> Result<Written, Invalid> {
        let demo = reading.extra.is_some();
        let written = Written::read((&self.name, &self.text), (&reading.places, demo), &environment)?;
        let extra = reading.extra.iter().flat_map(|extra| extra.iter().cloned());
        written.with_targets(extra).map_err(|problems: Vec<Problem>| Invalid { problems, rest: None })
    }
}

/// The value of an environment variable; `None` if it is not set or empty. Compose files often set variables to nothing.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Reads a text file of at most `longest` bytes.
///
/// # Errors
/// One sentence: what is wrong and what to do.
pub fn read_text(file: &Path, longest: u64) -> Result<String, String> {
    use std::io::Read;
    let name = file.display();
    let why = |error: std::io::Error| match error.kind() {
        // The value may be a secret that was written in place of its file's name.
        ErrorKind::NotFound if file.to_string_lossy().contains(['!', '=']) => {
            "no such file: give the path of the file, not its content".to_owned()
        }
        ErrorKind::NotFound => format!("there is no file {name}: check its path"),
        ErrorKind::PermissionDenied => format!("{name} may not be read by this user: change its permissions"),
        ErrorKind::InvalidData => format!("{name} is not UTF-8 text: check that it is the right file"),
        _ => format!("{name} cannot be read ({error})"),
    };
    if !std::fs::metadata(file).map_err(why)?.is_file() {
        return Err(format!("{name} is not an ordinary file: give the path of one"));
    }
    let mut text = String::new();
    let mut opened = std::fs::File::open(file).map_err(why)?.take(longest + 1);
    opened.read_to_string(&mut text).map_err(why)?;
    if text.len() as u64 > longest {
        return Err(format!("{name} is longer than {longest} bytes: check that it is the right file"));
    }
    Ok(text)
}
