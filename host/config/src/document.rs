//! The configuration file: finds it, reads it, and detects changes.

use crate::written::{Extra, Invalid, Written};
use crate::{Places, Problem, find};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The maximum size of the configuration file in bytes.
const LARGEST: u64 = 16 << 20;

/// The text of a configuration and its source.
#[derive(Clone, Debug)]
pub struct Document {
    /// The name of the file, for messages.
    pub name: String,
    /// The text of the configuration.
    pub text: Arc<str>,
    /// The path of the file; `None` for the demo without a file.
    pub path: Option<PathBuf>,
    /// The state of the file before it was read.
    pub stamp: Option<Stamp>,
}

/// The state of a file; two states differ if the file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    length: u64,
    modified: (i64, i64),
    /// The time of the last change of metadata, such as permissions.
    changed: (i64, i64),
}

/// The options for reading a document.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The places of configuration and data.
    pub places: Places,
    /// The demo, in addition to the file. With it, the data directory is that of the demo.
    pub extra: Option<Arc<Extra>>,
}

impl Stamp {
    /// Returns the current state of a file; `None` if the file does not exist.
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

    /// Creates a document without a file.
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

    /// Parses and checks the text, of which an earlier version is known to be valid. The result is that of
    /// [`Self::parse`].
    ///
    /// # Errors
    /// Every problem, and the parts that could be read.
    pub fn parse_again(&self, reading: &Reading, (before, written): (&Self, &Written)) -> Result<Written, Invalid> {
        // Targets that are not in the file depend on its targets.
        if reading.extra.is_none()
            && self.name == before.name
            && let Some(written) = written.reread(&before.text, (&self.name, &self.text), &environment)
        {
            return Ok(written);
        }
        self.parse(reading)
    }

    /// Parses and checks the text.
    ///
    /// # Errors
    /// Every problem, and the parts that could be read.
    pub fn parse(&self, reading: &Reading) -> Result<Written, Invalid> {
        let demo = reading.extra.is_some();
        let written = Written::read((&self.name, &self.text), (&reading.places, demo), &environment)?;
        // The services of the demo are on loopback, and so is what a newcomer adds.
        let written = if demo { written.reaching_loopback() } else { written };
        let extra = reading.extra.as_deref().cloned().unwrap_or_default();
        written.with_extra(extra).map_err(|problems: Vec<Problem>| Invalid { problems, rest: None })
    }
}

/// Returns the value of an environment variable; `None` if it is not set or empty, because Compose files often set
/// empty variables.
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
        // The value may be a secret that was written instead of the file name.
        ErrorKind::NotFound if file.to_string_lossy().contains(['!', '=']) => {
            "no such file: give the path of the file, not its content".to_owned()
        }
        ErrorKind::NotFound => format!("there is no file {name}: check its path"),
        ErrorKind::PermissionDenied => format!("{name} may not be read by this user: change its permissions"),
        ErrorKind::InvalidData => format!("{name} is not UTF-8 text: check that it is the right file"),
        _ => format!("{name} cannot be read ({error})"),
    };
    if !std::fs::metadata(file).map_err(why)?.is_file() {
        return Err(format!("{name} is not an ordinary file: give the path of an ordinary file"));
    }
    let mut text = String::new();
    let mut opened = std::fs::File::open(file).map_err(why)?.take(longest + 1);
    opened.read_to_string(&mut text).map_err(why)?;
    if text.len() as u64 > longest {
        return Err(format!("{name} is longer than {longest} bytes: check that it is the right file"));
    }
    // Editors write a byte order mark in front of the text, which does not belong to it.
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}
