//! The products' own words for a refusal, and how an operator corrects it.

use crate::product::Product;
use crate::sorted_map::SortedMap;
use polliwog_sdk::http::Response;
use serde::Deserialize;

/// The longest quotation of a server, in characters.
const QUOTED: usize = 240;

/// The words of Proxmox VE for a token that it does not accept, and the remedy.
const TOKEN_ERRORS: [(&str, &str); 5] = [
    (
        "invalid token value",
        "user and name of the token are right, and its secret is wrong; if the secret is lost, create the token again: \
         \"pveum user token remove USER@REALM NAME\", then \"pveum user token add USER@REALM NAME\", and grant it its rights \
         again",
    ),
    (
        "no such token",
        "the user is right and has no token of that name: \"pveum user token list USER@REALM\" lists the tokens",
    ),
    (
        "access expired",
        "set another date for user and token, or none (0), in the web interface or with \"pveum user modify USER@REALM \
         -expire 0\"",
    ),
    ("is disabled", "enable the user on the server: \"pveum user modify USER@REALM -enable 1\""),
    (
        "no such user",
        "there is no such user: check the part before the !, with its realm; \"pveum user list\" lists all users",
    ),
];

/// The privileges of the role PVEAuditor end so (pve-access-control: PVE/AccessControl.pm).
const AUDITOR: &str = ".Audit";

/// The server's own words: `message` or `errors` of its body, a plain text body, or the reason phrase.
pub(super) fn said(response: &Response) -> String {
    #[derive(Deserialize)]
    struct Body {
        message: Option<String>,
        errors: Option<SortedMap<String, String>>,
    }

    let text = response.text();
    let words = match serde_json::from_str(&text) {
        Ok(Body { message: Some(message), .. }) => message,
        Ok(Body { errors: Some(errors), .. }) => {
            errors.into_iter().map(|(field, what)| format!("{field}: {what}")).collect::<Vec<_>>().join("; ")
        }
        Ok(_) => String::new(),
        // Backup Server writes plain text. A web page and half an object say nothing to a person.
        Err(_) if text.trim_start().starts_with(['<', '{', '[']) => String::new(),
        Err(_) => text,
    };
    let words = if words.trim().is_empty() { response.reason() } else { words.trim() };
    words.chars().take(QUOTED).collect()
}

pub(super) fn redirected(product: Product, response: &Response) -> String {
    let to = response.header("location").unwrap_or("another address");
    format!(
        "the server answers with a redirect to {to}: write the URL of {} itself, such as https://HOST:{}",
        product.name(),
        product.port()
    )
}

/// The message for a 401. Each product refuses in its own words, which show whether the server is the expected product.
pub(super) fn unauthorized(product: Product, said: &str, quoted: &str) -> String {
    let has = |words: &str| said.contains(words);
    let speaker = if has("PVE ticket") {
        Some(Product::Ve)
    } else if has("PMG ticket") || has("API tokens not implemented") {
        Some(Product::Mail)
    } else if has("authentication failed") {
        Some(Product::Backup)
    } else {
        None
    };
    if product == Product::Backup && has("No ticket") {
        return format!(
            "this is Proxmox VE or Mail Gateway, not Backup Server ({quoted}): write the right kind, or the right URL"
        );
    }
    // Before 9.1.5 Proxmox VE reports what is wrong with a token (pve-access-control: PVE/AccessControl.pm,
    // verify_token).
    if product == Product::Ve
        && let Some(why) = TOKEN_ERRORS.iter().find_map(|(words, why)| has(words).then_some(why))
    {
        return format!("the server does not accept the credentials ({quoted}): {why}");
    }
    let known = ["No ticket", "Authentication failed!", "authentication failure"];
    match speaker {
        Some(other) if other != product => format!(
            "this is {}, not {} ({quoted}): write kind = \"{}\", or the right URL",
            other.name(),
            product.name(),
            other.kind()
        ),
        None if !known.iter().any(|words| has(words)) => format!(
            "the server does not accept the credentials, in words that {} does not use ({quoted}): check the URL; if it is \
             right, {}",
            product.name(),
            product.check_credentials()
        ),
        _ => format!("the server does not accept the credentials ({quoted}): {}", product.check_credentials()),
    }
}

/// The message for a 403. `Permission check failed (/, Sys.Audit)` names object and privilege; Backup Server names
/// neither.
pub(super) fn forbidden(product: Product, path: &str, said: &str, quoted: &str) -> String {
    if matches!(path, "/version" | "/access/ticket") {
        return format!(
            "{path} is refused ({quoted}), which {} allows for everyone: check the URL, and any proxy or list of allowed \
             addresses in between",
            product.name()
        );
    }
    let named = said.rsplit_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(inside, _)| inside);
    let named = named.and_then(|inside| inside.split_once(','));
    let named = named.map(|(object, privileges)| (object.trim(), privileges.trim()));
    let lacks = match named {
        Some((object, privileges)) => format!("lack {} on {object}", privileges.replace('|', " or ")),
        None => format!("lack the rights for {path}"),
    };
    let remedy = match named {
        // PVEAuditor does not have the privilege.
        Some((object, privileges)) if product == Product::Ve && !privileges.contains(AUDITOR) => format!(
            "the role PVEAuditor does not have it; run on the server \"pveum role add PolliwogMore -privs {}\", \"pveum acl \
             modify {object} -user USER@REALM -role PolliwogMore\" and the same with -token 'USER@REALM!NAME'",
            privileges.split('|').next().unwrap_or_default()
        ),
        _ => product.grant_rights().to_owned(),
    };
    format!("the credentials are right and {lacks}: {remedy}")
}

/// A hint at the port and protocol of a product; `None` if the URL has both.
pub(super) fn wrong_port(product: Product, base: &str) -> Option<String> {
    let right = product.port();
    let standard = base.rsplit_once(':').is_some_and(|(_, port)| port.trim_end_matches('/') == right.to_string());
    let plain = base.starts_with("http://");
    match (standard, plain) {
        (true, false) => None,
        (false, true) => Some(format!("{} uses https only, on port {right} by default", product.name())),
        (false, false) => Some(format!("{} listens on port {right} by default", product.name())),
        (true, true) => Some(format!("{} uses https only", product.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_port_or_protocol_is_named() {
        for (base, expected) in [
            ("https://a:8006", None),
            ("https://a:8007", Some("Proxmox VE listens on port 8006 by default")),
            ("https://a", Some("Proxmox VE listens on port 8006 by default")),
            ("http://a:8006", Some("Proxmox VE uses https only")),
            ("http://a:80", Some("Proxmox VE uses https only, on port 8006 by default")),
        ] {
            assert_eq!(wrong_port(Product::Ve, base).as_deref(), expected, "{base}");
        }
    }
}
