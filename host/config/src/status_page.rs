//! Reads `[[status_page]]`: public pages of chosen targets.

use crate::reader::{Notes, Section, words};
use crate::value::{Entry, Value};
use model::{StatusPage, TargetId};

/// The maximum number of status pages.
const PAGES: usize = 100;
/// The maximum number of targets of a status page.
const TARGETS: usize = 100;

pub(crate) fn status_pages(notes: &Notes<'_>, document: &[Entry]) -> Vec<StatusPage> {
    let mut pages: Vec<StatusPage> = Vec::new();
    let Some(entry) = document.iter().find(|entry| entry.key == "status_page") else { return pages };
    let Value::Array(items) = &entry.node.value else {
        notes.at(entry.line, "a status page is written as [[status_page]], with two brackets");
        return pages;
    };
    for item in items {
        let Value::Table(entries) = &item.value else {
            notes.at(item.line, "a status page is written as [[status_page]], with two brackets");
            continue;
        };
        let section = Section::inner(notes, "status_page".to_owned(), entries);
        let name = section.text("name");
        let title = section.text("title");
        let targets = section
            .get("targets", |value| words(value)?.iter().map(|word| id(word)).collect::<Result<Vec<_>, String>>());
        section.finish();
        let (Some(name), Some(targets)) = (name, targets) else {
            // A key with a wrong value is reported already.
            if !["name", "targets"].iter().all(|key| entries.iter().any(|entry| entry.key == *key)) {
                notes.at(item.line, "a status page has a name and targets, a list of ids");
            }
            continue;
        };
        if TargetId::new(&name).is_err() {
            let rule = "use lower-case letters, digits, - and _, and begin with a letter or a digit";
            notes.at(item.line, format!("{name:?} cannot be the name of a status page: {rule}"));
        } else if pages.iter().any(|page| page.name == name) {
            notes.at(item.line, format!("there is a status page {name:?} already: choose another name"));
        } else if targets.is_empty() || targets.len() > TARGETS {
            notes.at(item.line, format!("a status page has 1 to {TARGETS} targets"));
        } else if pages.len() == PAGES {
            notes.at(item.line, format!("there are more than {PAGES} status pages"));
        } else {
            pages.push(StatusPage { title: title.unwrap_or_else(|| name.clone()), name, targets });
        }
    }
    pages
}

fn id(word: &str) -> Result<TargetId, String> {
    TargetId::new(word).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use crate::{Config, Places};

    fn read(text: &str) -> Result<Config, String> {
        let text = format!("{text}[[target]]\nid = \"shop\"\nkind = \"http\"\nurl = \"http://a/\"\n");
        Config::written(("p.toml", &text), &Places::default(), &|_| None)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn status_pages_are_read_and_their_problems_named() {
        let config = read("[[status_page]]\nname = \"public\"\ntargets = [\"shop\"]\n").unwrap();
        let page = &config.status_pages[0];
        assert_eq!((&*page.name, &*page.title, page.targets[0].as_str()), ("public", "public", "shop"));
        let page = |more: &str| format!("[[status_page]]\n{more}\n");
        for (text, expected) in [
            ("[status_page]\nname = \"a\"\n".to_owned(), "p.toml:1: a status page is written as [[status_page]]"),
            (page("name = \"a\""), "p.toml:1: a status page has a name and targets"),
            (page("name = \"A b\"\ntargets = [\"shop\"]"), "\"A b\" cannot be the name of a status page"),
            (page("name = \"a\"\ntargets = []"), "p.toml:1: a status page has 1 to 100 targets"),
            (page("name = \"a\"\ntargets = [\"Shop\"]"), "p.toml:3: targets: \"Shop\" does not fit"),
            (page("name = \"a\"\ntargets = [\"shop\"]").repeat(2), "p.toml:4: there is a status page \"a\" already"),
            (page("name = \"a\"\ntargets = [\"shop\"]\ntitel = \"x\""), "did you mean \"title\""),
        ] {
            let problems = read(&text).unwrap_err();
            assert!(problems.contains(expected), "{text}: {problems}");
        }
    }
}
