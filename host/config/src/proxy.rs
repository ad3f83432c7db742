//! Reads the reverse proxy of `[server]`, whose users are accepted.

use crate::reader::{Notes, Section, words};
use egress::Cidr;
use model::Scope;

/// A reverse proxy that authenticates users and names them in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyConfig {
    /// The name of the header, in lower case.
    pub header: String,
    /// The scope of its users.
    pub scope: Scope,
    /// The addresses of the proxy.
    pub from: Vec<Cidr>,
}

/// Headers that every client sends, or that decide about other things.
const FORBIDDEN: [&str; 6] = ["authorization", "cookie", "host", "user-agent", "accept", "x-csrf-token"];

pub(crate) fn proxy(notes: &Notes<'_>, section: &Section<'_>) -> Option<ProxyConfig> {
    let header = section.text("proxy_user_header").map(|header| header.to_ascii_lowercase());
    let from = section.get("proxies", |value| words(value)?.iter().map(|item| item.parse()).collect::<Result<_, _>>());
    let from: Vec<Cidr> = from.unwrap_or_default();
    let scope = section.get("proxy_scope", |value| {
        let known = [Scope::Read, Scope::Operate, Scope::Admin];
        let word = crate::reader::text(value)?;
        known
            .into_iter()
            .find(|scope| scope.as_str() == word)
            .ok_or_else(|| format!("unknown scope {word:?}: use one of {}", known.map(Scope::as_str).join(", ")))
    });
    let is_name = |header: &str| {
        let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-_".contains(letter);
        !header.is_empty() && header.chars().all(is_letter) && !FORBIDDEN.contains(&header)
    };
    match header {
        Some(header) if !is_name(&header) => {
            let line = section.line("proxy_user_header");
            notes.at(
                line,
                format!("proxy_user_header: {header:?} cannot name a user: use, for example, \"remote-user\""),
            );
            None
        }
        Some(_) if from.is_empty() => {
            let line = section.line("proxy_user_header");
            notes.at(line, "proxy_user_header needs proxies, the addresses of the proxy, as in [\"127.0.0.1/32\"]");
            None
        }
        None if !from.is_empty() => {
            notes.at(
                section.line("proxies"),
                "proxies needs proxy_user_header, the header in which the proxy names the user",
            );
            None
        }
        Some(header) => Some(ProxyConfig { header, scope: scope.unwrap_or(Scope::Read), from }),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Places};
    use model::Scope;

    fn read(lines: &str) -> Result<Config, String> {
        let text = format!("[server]\n{lines}\n");
        Config::written(("p.toml", &text), &Places::default(), &|_| None)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn a_proxy_has_a_header_and_addresses() {
        let header = "proxy_user_header = \"Remote-User\"\n";
        let proxy = read(&format!("{header}proxies = [\"10.1.0.0/16\"]")).unwrap().proxy.unwrap();
        assert_eq!((&*proxy.header, proxy.scope, proxy.from.len()), ("remote-user", Scope::Read, 1));
        assert!(read("").unwrap().proxy.is_none());
        for (lines, expected) in [
            (header.to_owned(), "p.toml:2: proxy_user_header needs proxies"),
            ("proxies = [\"10.0.0.0/8\"]".to_owned(), "p.toml:2: proxies needs proxy_user_header"),
            (format!("{header}proxies = [\"10.0.0.0/8\"]\nproxy_scope = \"wall\""), "unknown scope \"wall\""),
            ("proxy_user_header = \"Cookie\"\nproxies = [\"10.0.0.0/8\"]".to_owned(), "\"cookie\" cannot name a user"),
            (format!("{header}proxies = [\"near\"]"), "p.toml:3: proxies"),
        ] {
            let problems = read(&lines).unwrap_err();
            assert!(problems.contains(expected), "{lines}: {problems}");
        }
    }
}
