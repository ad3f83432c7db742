//! References to secrets in the texts of a target or channel: `${secret.NAME}` and `${basic.NAME}`.

use crate::target_config::TargetConfig;
use egress::{has_references, reference_problems};
use serde_json::Value;

/// Returns the problems of the references in the settings, each with the path of its setting, and in the URL.
pub(crate) fn problems(target: &TargetConfig) -> Vec<(Option<String>, String)> {
    let is_known = |name: &str| target.secrets.contains_key(name);
    let mut found = Vec::new();
    let mut see = |place: Option<&str>, text: &str| {
        let problems = reference_problems(text, is_known);
        found.extend(problems.into_iter().map(|problem| (place.map(str::to_owned), problem)));
    };
    walk(&target.settings, "", &mut see);
    let url = target.written_url();
    if target.is_channel || target.permissions.in_path {
        see(None, &url);
    } else if has_references(&url) {
        let why = "requests of a target have secrets in their path or query only with secrets_in_path = true, because \
                   servers log them";
        found.push((None, why.to_owned()));
    }
    found
}

/// Calls `see` with each text of a value and its path.
fn walk(value: &Value, path: &str, see: &mut impl FnMut(Option<&str>, &str)) {
    let inner = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::String(text) => see(Some(path), text),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| walk(item, &inner(&index.to_string()), see));
        }
        Value::Object(fields) => fields.iter().for_each(|(key, value)| walk(value, &inner(key), see)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Places};

    #[test]
    fn unknown_and_misspelled_references_are_named_at_their_line() {
        let read = |settings: &str| {
            let text = format!(
                "[[target]]\nid = \"a\"\nkind = \"http\"\nurl = \"http://a/\"\nsecrets = {{ token = {{ env = \"T\" }} }}\n\
                 [target.settings]\n{settings}"
            );
            let found = Config::written(("p.toml", &text), &Places::default(), &|_| None).err().unwrap_or_default();
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        for fine in [
            "body = \"${secret.token} ${basic.token}\"",
            "body = \"$${secrets.token} ${HOME} ${env.SECRET} ${}\"",
            "body = \"${ title }\"",
        ] {
            assert_eq!(read(fine), "", "{fine}");
        }
        for (settings, expected) in [
            ("body = \"${secret.tokn}\"", "p.toml:7: target a: settings: body: there is no secret \"tokn\""),
            ("headers = { x = \"${secrets.token}\" }", "p.toml:7: target a: settings: headers.x: ${secrets.token} is"),
            ("a = 1\nlist = [\"x\", \"${Secret.token}\"]", "p.toml:8: target a: settings: list.1: ${Secret.token} is"),
            ("body = \"${secret:token}\"", "write ${secret.NAME}"),
            ("body = \"${basic}\"", "write ${basic.NAME}"),
            ("body = \"${ secret.token }\"", "write ${secret.NAME}"),
        ] {
            let problems = read(settings);
            assert!(problems.contains(expected), "{settings}: {problems}");
        }
    }

    #[test]
    fn references_in_the_url_of_a_target_need_a_permission() {
        let read = |url: &str, more: &str| {
            let text = format!(
                "[plugins.limits.http]\nmethods = [\"get\", \"PROPFIND\"]\n[[target]]\nid = \"a\"\nkind = \"http\"\nurl = \"{url}\"\n\
                 {more}\nsecrets = {{ token = {{ env = \"T\" }} }}\n"
            );
            let found = Config::written(("p.toml", &text), &Places::default(), &|_| None).err().unwrap_or_default();
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let permitted = "secrets_in_path = true";
        for (url, more, expected) in [
            ("http://a/x", "", ""),
            ("http://a/$${secret.token}?${HOME}", "", ""),
            ("http://a/${secret.token}/x", "", "only with secrets_in_path = true"),
            ("http://a/?k=${basic.token}", "", "only with secrets_in_path = true"),
            ("http://a/${secret.token}/x?k=${secret.token}", permitted, ""),
            ("http://a/${secret.tokn}", permitted, "there is no secret \"tokn\""),
            ("http://a/${secrets.token}", permitted, "is not a reference to a secret"),
            ("http://a/", "short_captures = true", ""),
            ("http://a/", "short_captures = 7", "short_captures"),
        ] {
            let problems = read(url, more);
            assert_eq!(problems.is_empty(), expected.is_empty(), "{url} {more}: {problems}");
            assert!(problems.contains(expected), "{url} {more}: {problems}");
        }
    }

    #[test]
    fn methods_that_are_never_sent_or_are_none_are_refused() {
        for (written, expected) in
            [("GET", ""), ("trace", "TRACE is never sent"), ("CONNECT", "never sent"), ("G-T", "is not a method")]
        {
            let text = format!("[plugins.limits.http]\nmethods = [\"{written}\"]\n");
            let found = Config::written(("p.toml", &text), &Places::default(), &|_| None).err().unwrap_or_default();
            let problems = found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            assert!(problems.is_empty() == expected.is_empty() && problems.contains(expected), "{written}: {problems}");
        }
    }
}
