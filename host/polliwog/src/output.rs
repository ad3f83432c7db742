//! Printing text and JSON to stdout and stderr.

use anyhow::Context;
use std::io::{ErrorKind, Write};

/// `1 problem`, `2 problems`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Prints text. A closed pipe is not an error, because a reader may stop early; a full disk is.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_line(&visible(text, |c| c.escape_unicode().to_string()))
}

/// Prints JSON on one line.
pub(crate) fn print_json(value: &serde_json::Value) -> anyhow::Result<()> {
    let escaped = |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    print_line(&visible(&value.to_string(), escaped))
}

fn print_line(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("writing to stdout"),
        _ => Ok(()),
    }
}

/// Writes a line to stderr. A failure to write is ignored.
pub(crate) fn complain(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{}", visible(&line.to_string(), |c| c.escape_unicode().to_string()));
}

/// Escapes characters that a terminal would interpret or hide, because the text may come from a plugin or a server.
fn visible(text: &str, escaped: impl Fn(char) -> String) -> String {
    let acts = |c: char| c != '\n' && c != '\t' && (c.is_control() || model::is_invisible(c));
    if !text.contains(acts) {
        return text.to_owned();
    }
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if acts(c) {
            shown.push_str(&escaped(c));
        } else {
            shown.push(c);
        }
        shown
    })
}
