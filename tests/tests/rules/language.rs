//! The language of comments, messages and documents.

use regex::Regex;
use std::path::{Path, PathBuf};

/// Words and phrases for which there is a plain term. The list grows when a reader stumbles.
const MARKERS: [&str; 36] = [
    "anew",
    "anybody",
    "are asked",
    "are none",
    "are told",
    "as ever",
    "beside",
    "by itself",
    "everybody",
    "goes on as",
    "in force",
    "in its place",
    "is asked",
    "is none",
    "is taken up",
    "is told",
    "knows of",
    "left alone",
    "look at",
    "looked at",
    "looks at",
    "mends",
    "nobody",
    "not taken up",
    "nothing where",
    "of its own",
    "once more",
    "somebody",
    "tells",
    "there is none",
    "told apart",
    "want of",
    "was told",
    "what is asked",
    "whichever",
    "whoever",
];
/// Comments that repeat the name of their item, or that are questions.
const FRAGMENTS: &str = r"^\s*//[/!]? ((Whose|When|Its \w+|For \w+|Where|Why|How)\.$|(What|Who|Whose) )";
const ENDINGS: [&str; 8] = ["rs", "md", "wit", "js", "ts", "py", "sh", "html"];

/// Every text file under version control, by what git lists.
fn files(root: &Path) -> Vec<PathBuf> {
    let output = std::process::Command::new("git").args(["ls-files"]).current_dir(root).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let is_text =
        |file: &&str| Path::new(file).extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
    let own = Path::new(file!()).file_name().unwrap();
    listed.lines().filter(is_text).map(|file| root.join(file)).filter(|file| file.file_name() != Some(own)).collect()
}

/// The parts of a line of Rust that people read: comments and texts.
fn prose(line: &str) -> String {
    let comment = ["// ", "/// ", "//! "].iter().filter_map(|start| line.find(start)).min();
    if let Some(at) = comment {
        return format!("{} {}", quoted(&line[..at]), &line[at..]);
    }
    let is_inside = !line.contains('"') && !line.contains("fn ") && !line.contains("let ") && !line.contains("::");
    if is_inside && !line.contains('(') { line.to_owned() } else { quoted(line) }
}

fn quoted(code: &str) -> String {
    code.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" ")
}

/// The markers in the texts of a repository, each with its place.
pub(crate) fn markers(root: &Path) -> Vec<String> {
    let marker = Regex::new(&format!(r"(?i)\b({})\b", MARKERS.join("|"))).unwrap();
    let fragment = Regex::new(FRAGMENTS).unwrap();
    let mut found = Vec::new();
    for file in files(root) {
        let is_code = file.extension().is_some_and(|ending| ending == "rs");
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        for (number, line) in text.lines().enumerate() {
            let read = match file.extension().and_then(|ending| ending.to_str()) {
                Some("rs") => prose(line),
                // Code of Python compares values with `None`.
                Some("py") => line.replace("is None", ""),
                _ => line.to_owned(),
            };
            let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            if let Some(marker) = marker.find(&read) {
                found.push(format!("{name}:{}: {:?}", number + 1, marker.as_str()));
            } else if is_code && fragment.is_match(line) {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    found
}

/// Messages that the documents quote and that no source file contains.
pub(crate) fn invented_quotes(root: &Path) -> Vec<String> {
    let spaces = Regex::new(r"\s+").unwrap();
    let broken = Regex::new(r"\\\n\s*").unwrap();
    let (mut sources, mut documents) = (String::new(), Vec::new());
    for file in files(root) {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        match file.extension().and_then(|ending| ending.to_str()) {
            Some("rs") => sources.push_str(&broken.replace_all(&text, "").replace("\\\"", "\"")),
            Some("md") => documents.push((file, text)),
            _ => {}
        }
    }
    let sources = spaces.replace_all(&sources, " ");
    let block = Regex::new(r"(?s)```.*?```").unwrap();
    let quote = Regex::new(r"`([^`\n]+(?:\n[^`\n]+)?)`").unwrap();
    let command =
        Regex::new(r#"^(polliwog|cargo|curl|GET|PUT|POST|DELETE|targets|plugin|settings|token|\.|\{|\[)|=|\["#)
            .unwrap();
    // Names, numbers and values differ; the words between them do not.
    let values = Regex::new(r#"[A-Z]+[\w]*|\d+|"[^"]*"|…|[{}<>()]|/\S+|\S*\.\w+\S*|\S*_\S*|: |; "#).unwrap();
    let mut found = Vec::new();
    for (file, text) in documents {
        for quoted in quote.captures_iter(&block.replace_all(&text, "")) {
            let message = spaces.replace_all(&quoted[1], " ").into_owned();
            if message.matches(' ').count() < 4 || command.is_match(&message) {
                continue;
            }
            let parts = values.split(&message).map(str::trim).filter(|part| part.matches(' ').count() >= 2);
            for part in parts.filter(|part| !sources.contains(part)) {
                found.push(format!("{}: {message:?}: no message contains {part:?}", file.display()));
            }
        }
    }
    found
}

#[test]
fn only_texts_are_read_in_code() {
    for (line, expected) in [
        ("let nobody = 1; // somebody", " // somebody"),
        ("/// A file beside it.", " /// A file beside it."),
        ("say(\"once more\", anew)", "once more"),
        ("fn beside(path: &Path)", ""),
    ] {
        assert_eq!(prose(line), expected);
    }
}
