//! Reports texts with control characters, line breaks, right-to-left marks and markup.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report};

guests::guest!("texts-are-hostile", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let evil = "\u{1b}[31mred\u{0}\r\n<script>alert(1)</script>\u{202e}drow\u{200b}";
    let more = Dependency {
        title: Some(evil.to_owned()),
        impact: Some(evil.to_owned()),
        error: Some(format!("{{{evil}")),
        contact: Some("[1]".to_owned()),
        check_details: Some("not json".to_owned()),
        ..Dependency::critical("<b>bold</b>", evil).with_description(evil).with_kind(evil)
    };
    let names = ["", " ", "a\nb", "a\u{0}b"];
    Ok(names.iter().map(|name| Dependency::ok(*name)).chain([more]).collect())
}
