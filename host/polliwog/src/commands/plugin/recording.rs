//! Files with recordings. `poll --record` writes them; `plugin test` and `plugin bench` replay them.

use anyhow::Context;
use sandbox::Recording;
use std::path::Path;

/// The longest recording, in bytes.
const LONGEST: u64 = 256 << 20;

/// Checks whether a recording may be written to `file`. Fails with the reason if the file exists and is not a
/// recording, or if `plugin test` would not find it by its name.
pub(crate) fn may_be_written(file: &Path) -> Result<(), String> {
    let name = file.display();
    let words = file.file_name().unwrap_or_default().to_string_lossy();
    if !words.ends_with(".json") || words.ends_with(".report.json") {
        return Err(format!("the name of a recording must end in .json and not in .report.json: {name}"));
    }
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        return Err(format!("the folder {} does not exist: create it first", folder.display()));
    }
    match read(file) {
        Err(_) if file.exists() => Err(format!("{name} exists and is not a recording: choose another name")),
        _ => Ok(()),
    }
}

/// Writes a recording.
pub(crate) fn write(recording: &Recording, file: &Path) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(recording)?;
    std::fs::write(file, format!("{text}\n")).with_context(|| format!("writing the recording {}", file.display()))
}

/// Reads a recording. Fails with the reason if the file is not a valid recording.
pub(crate) fn read(file: &Path) -> Result<Recording, String> {
    Recording::parse(&config::read_text(file, LONGEST)?, &file.display().to_string())
}
