//! Why there is no answer, and what mends it.
//!
//! The three products say what is wrong in three places: in the HTTP reason phrase (Proxmox VE and Mail Gateway, a 401
//! always), in a JSON body's `message` or `errors` (the same two, otherwise), and as plain text that claims to be JSON
//! (Backup Server). 595 to 599 are not the server's trouble but that of the node behind it.

use polliwog_sdk::http::{HttpError, Response};
use polliwog_sdk::{Failure, PollError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// How much of a server's own words is shown, in characters.
const SAID: usize = 240;

/// One of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Proxmox VE.
    Ve,
    /// Proxmox Backup Server.
    Backup,
    /// Proxmox Mail Gateway.
    Mail,
}

impl Product {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ve => "Proxmox VE",
            Self::Backup => "Proxmox Backup Server",
            Self::Mail => "Proxmox Mail Gateway",
        }
    }

    /// What operators write.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Ve => "pve",
            Self::Backup => "pbs",
            Self::Mail => "pmg",
        }
    }

    /// Where it listens.
    pub fn port(self) -> u16 {
        match self {
            Self::Ve | Self::Mail => 8006,
            Self::Backup => 8007,
        }
    }

    /// The units whose log says why a request failed.
    fn journal(self) -> &'static str {
        match self {
            Self::Ve => "-u pvedaemon -u pveproxy -u pve-cluster",
            Self::Backup => "-u proxmox-backup -u proxmox-backup-proxy",
            Self::Mail => "-u pmgdaemon -u pmgproxy",
        }
    }

    /// How to look whether the credentials are right.
    fn check_credentials(self) -> &'static str {
        match self {
            Self::Ve => {
                "check there with \"pveum user token list USER@REALM\" that the token exists and has not expired, and that \
                 the secret is the whole USER@REALM!NAME=SECRET"
            }
            Self::Backup => {
                "check there with \"proxmox-backup-manager user list-tokens USER@REALM\" that the token exists and has not \
                 expired, and that the secret is the whole USER@REALM!NAME:SECRET (with a colon)"
            }
            Self::Mail => {
                "check the setting \"username\" (with its realm, as in monitor@pmg) and the secret \"password\""
            }
        }
    }

    /// How to give the rights that everything here can be read with.
    pub fn grant_rights(self) -> &'static str {
        match self {
            Self::Ve => {
                "run there \"pveum acl modify / -user USER@REALM -role PVEAuditor\" and \
                 \"pveum acl modify / -token 'USER@REALM!NAME' -role PVEAuditor\": both the user and the token need it"
            }
            Self::Backup => {
                "run there \"proxmox-backup-manager acl update / Audit --auth-id USER@REALM\" and the same for \
                 --auth-id 'USER@REALM!NAME': both the user and the token need it (and RemoteAudit on /remote, for sync jobs)"
            }
            Self::Mail => "give the user the role Auditor there: \"pmgsh set /access/users/USER@pmg --role audit\"",
        }
    }
}

/// Why something could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Stable, snake_case.
    pub code: String,
    /// One sentence: what is wrong, and what to do.
    pub sentence: String,
    /// Whether it stays until somebody changes something.
    pub permanent: bool,
    /// Whether nobody answered there at all, so that another origin may.
    pub silent: bool,
    /// How long the source asked to be left alone.
    pub retry_after_ms: Option<u32>,
}

impl Trouble {
    fn new(code: &str, sentence: String) -> Self {
        Self { code: code.to_owned(), sentence, permanent: false, silent: false, retry_after_ms: None }
    }

    /// One that stays until somebody changes something.
    pub fn permanent(code: &str, sentence: String) -> Self {
        Self { permanent: true, ..Self::new(code, sentence) }
    }

    /// That something is not asked for a while, because it did not answer in time.
    pub fn held(why: String) -> Self {
        Self { silent: true, ..Self::new("timeout", format!("it is not asked for an hour: {why}")) }
    }

    /// That an origin which answers other requests did not answer this one in time: where it is passed on to a node, that node.
    pub(crate) fn too_slow(path: &str, message: &str, node: bool) -> Self {
        let path = path.split('?').next().unwrap_or_default();
        if node {
            let hint =
                "look at the load of that node and, in a cluster, at the network between it and the one that was asked";
            return Self::new("node_unreachable", format!("{path}: {message}; {hint}"));
        }
        let sentence = format!("{path}: {message}; the server answers other requests: look at its load and its disks");
        Self { silent: true, ..Self::new("timeout", sentence) }
    }

    /// That nothing came back from an origin.
    pub(crate) fn unanswered(product: Product, base: &str, error: HttpError) -> Self {
        let HttpError { code, message, retryable } = error;
        let hint = match code.as_str() {
            "connect_refused" | "protocol" | "tls_failed" => wrong_port(product, base),
            "closed" if base.starts_with("http://") => wrong_port(product, base),
            "timeout" => Some(
                "check that the machine is up and no firewall stands between; one that is slow needs a longer timeout: \
                 above 30 s a fifth of it is for its first answer"
                    .to_owned(),
            ),
            "connect_failed" => Some("check that the machine is up and no firewall stands between".to_owned()),
            "tls_fingerprint_mismatch" | "tls_untrusted" => Some(format!(
                "\"polliwog setup {} {base}\" shows it, and the command that shows there which one is right",
                product.kind()
            )),
            "poll_over" => Some("raise the target's timeout, or look at what else takes so long".to_owned()),
            "body_too_large" => Some(format!(
                "[plugins.limits.{}] in the configuration can raise body_bytes and bodies_bytes",
                product.kind()
            )),
            _ => None,
        };
        let sentence = hint.map_or(message.clone(), |hint| format!("{message}; {hint}"));
        // Everything else is no matter of which origin is asked: Polliwog itself refuses, or an answer came and is too long.
        let nobody = ["dns_", "connect_", "tls_", "timeout", "closed", "protocol"];
        let silent = nobody.iter().any(|prefix| code.starts_with(prefix));
        Self { code, sentence, permanent: !retryable, silent, retry_after_ms: None }
    }

    /// What an answer that is none of 2xx says.
    fn answered(product: Product, path: &str, response: &Response) -> Self {
        let status = response.status();
        let said = said(response);
        let quoted = if said.is_empty() { format!("{status}") } else { format!("{status}, {said:?}") };
        let mut trouble = match status {
            300..=399 => redirected(product, response),
            401 => Self::permanent("unauthorized", unauthorized(product, &said, &quoted)),
            403 => Self::permanent("forbidden", forbidden(product, path, (&said, &quoted))),
            404 | 501 => Self::permanent(
                "not_served",
                format!(
                    "{path} is not served there ({quoted}): check that it is {} and no older than this plugin reads, and \
                     that the URL is that of its API",
                    product.name()
                ),
            ),
            595..=599 => Self::new(
                "node_unreachable",
                format!(
                    "the server that was asked cannot reach the node behind {path} ({quoted}): check that node, and the network between them"
                ),
            ),
            408 | 425 | 429 => Self::new("too_busy", format!("the server asks for patience ({quoted})")),
            // What Backup Server answers to whatever it did not expect; it may be gone at the next look.
            400 if product == Product::Backup => Self::new("refused", format!("the server refuses {path} ({quoted})")),
            500.. => Self::new(
                "server_error",
                format!("{path} failed there ({quoted}): look there at \"journalctl {}\"", product.journal()),
            ),
            _ => Self::permanent("refused", format!("the server refuses {path} ({quoted})")),
        };
        // A proxy in front says these when what is behind it does not answer.
        trouble.silent = matches!(status, 502..=504);
        trouble.retry_after_ms = response.retry_after_ms();
        trouble
    }

    /// A 2xx body that is not what it should be.
    fn unreadable(product: Product, path: &str, body: &[u8], error: &serde_json::Error) -> Self {
        let start = String::from_utf8_lossy(&body[..body.len().min(60)]).trim_start().to_owned();
        if start.starts_with('<') {
            let sentence = format!(
                "{path} was answered with a web page: the URL leads to a log-in page or a proxy; it should be that of {} \
                 itself, such as https://HOST:{}",
                product.name(),
                product.port()
            );
            return Self::new("web_page", sentence);
        }
        let (code, what) = match error.classify() {
            serde_json::error::Category::Data => ("unexpected_shape", "is of another shape than expected"),
            serde_json::error::Category::Eof => ("truncated", "ends in the middle"),
            _ => ("not_json", "is no JSON"),
        };
        Self::new(
            code,
            format!("the answer to {path} {what} ({error}); it begins {start:?}: check the URL, and any proxy between"),
        )
    }
}

impl From<Trouble> for PollError {
    fn from(trouble: Trouble) -> Self {
        let Trouble { code, sentence, permanent, retry_after_ms, .. } = trouble;
        let failure = Failure { code, message: sentence, retry_after_ms };
        if permanent { Self::Permanent(failure) } else { Self::Transient(failure) }
    }
}

/// What an answer to `path` holds, with or without its `{"data": …}`.
pub(crate) fn read<T: DeserializeOwned>(product: Product, path: &str, response: &Response) -> Result<T, Trouble> {
    #[derive(Deserialize)]
    struct Envelope<T> {
        data: T,
    }

    if !(200..300).contains(&response.status()) {
        return Err(Trouble::answered(product, path, response));
    }
    let body = response.body();
    let unreadable = |error: serde_json::Error| Trouble::unreadable(product, path, body, &error);
    // A list of one would do for a struct of one field.
    if !body.trim_ascii_start().starts_with(b"{") {
        return serde_json::from_slice(body).map_err(unreadable);
    }
    if let Ok(Envelope { data }) = serde_json::from_slice(body) {
        return Ok(data);
    }
    // Some take the envelope off on the way.
    let data = match serde_json::from_slice::<Envelope<&RawValue>>(body) {
        Ok(envelope) => envelope.data.get().as_bytes(),
        Err(error) if error.is_data() => body,
        Err(error) => return Err(unreadable(error)),
    };
    serde_json::from_slice(data).map_err(unreadable)
}

/// The server's own words, wherever it put them.
fn said(response: &Response) -> String {
    #[derive(Deserialize)]
    struct Body {
        message: Option<String>,
        errors: Option<BTreeMap<String, String>>,
    }

    let text = response.text();
    let words = match serde_json::from_str(&text) {
        Ok(Body { message: Some(message), .. }) => message,
        Ok(Body { errors: Some(errors), .. }) => {
            errors.into_iter().map(|(field, what)| format!("{field}: {what}")).collect::<Vec<_>>().join("; ")
        }
        Ok(_) => String::new(),
        // Backup Server writes plain text; pages and half an object are nobody's words.
        Err(_) if text.trim_start().starts_with(['<', '{', '[']) => String::new(),
        Err(_) => text,
    };
    let words = if words.trim().is_empty() { response.reason() } else { words.trim() };
    words.chars().take(SAID).collect()
}

fn redirected(product: Product, response: &Response) -> Trouble {
    let to = response.header("location").unwrap_or("another address");
    let sentence = format!(
        "the server answers with a redirect to {to}: write the URL of {} itself, such as https://HOST:{}",
        product.name(),
        product.port()
    );
    Trouble::permanent("redirect", sentence)
}

/// What Proxmox VE says of a token that it does not take, and what mends that.
const TOKEN_TROUBLE: [(&str, &str); 5] = [
    (
        "invalid token value",
        "user and name of the token are right and its secret is not; where it is lost, make the token anew: \"pveum user token \
         remove USER@REALM NAME\", then \"pveum user token add USER@REALM NAME\", and grant it its rights again",
    ),
    (
        "no such token",
        "the user is right and has no token of that name: \"pveum user token list USER@REALM\" shows those that there are",
    ),
    (
        "access expired",
        "give user and token another date, or none (0), in their settings there, or \"pveum user modify USER@REALM -expire 0\"",
    ),
    ("is disabled", "enable the user there: \"pveum user modify USER@REALM -enable 1\""),
    (
        "no such user",
        "there is no such user: check the part before the !, with its realm; \"pveum user list\" shows all",
    ),
];

/// What the role PVEAuditor holds (pve-access-control: PVE/AccessControl.pm).
const AUDITOR: &str = ".Audit";

/// Each product refuses in its own words, which say whether it is the one that was meant.
fn unauthorized(product: Product, said: &str, quoted: &str) -> String {
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
            "this is Proxmox VE or Mail Gateway, not Backup Server ({quoted}): write the right kind, or URL"
        );
    }
    // Before 9.1.5 Proxmox VE says what is wrong with a token (pve-access-control: PVE/AccessControl.pm, verify_token).
    if product == Product::Ve
        && let Some(why) = TOKEN_TROUBLE.iter().find_map(|(words, why)| has(words).then_some(why))
    {
        return format!("the server does not accept the credentials ({quoted}): {why}");
    }
    let theirs = ["No ticket", "Authentication failed!", "authentication failure"];
    match speaker {
        Some(other) if other != product => format!(
            "this is {}, not {} ({quoted}): write kind = \"{}\", or the right URL",
            other.name(),
            product.name(),
            other.kind()
        ),
        None if !theirs.iter().any(|words| has(words)) => format!(
            "the server wants other credentials, in words that are not those of {} ({quoted}): check the URL; if it is the right \
             one, {}",
            product.name(),
            product.check_credentials()
        ),
        _ => format!("the server does not accept the credentials ({quoted}): {}", product.check_credentials()),
    }
}

/// `Permission check failed (/, Sys.Audit)` names object and privilege; Backup Server names neither.
fn forbidden(product: Product, path: &str, (said, quoted): (&str, &str)) -> String {
    if matches!(path, "/version" | "/access/ticket") {
        return format!(
            "{path} is refused ({quoted}), which {} refuses to nobody: check the URL, and any proxy or list of allowed \
             addresses between",
            product.name()
        );
    }
    let named = said.rsplit_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(inside, _)| inside);
    let lacks = match named.and_then(|inside| inside.split_once(',')) {
        Some((object, privileges)) => {
            format!("lack {} on {}", privileges.trim().replace('|', " or "), object.trim())
        }
        None => format!("lack the rights for {path}"),
    };
    let named = named.and_then(|inside| inside.split_once(','));
    let remedy = match named.map(|(object, privileges)| (object.trim(), privileges.trim())) {
        // The role that only looks does not have it.
        Some((object, privileges)) if product == Product::Ve && !privileges.contains(AUDITOR) => format!(
            "the role PVEAuditor does not have that; run there \"pveum role add PolliwogMore -privs {}\", \"pveum acl modify \
             {object} -user USER@REALM -role PolliwogMore\" and the same with -token 'USER@REALM!NAME'",
            privileges.split('|').next().unwrap_or_default()
        ),
        _ => product.grant_rights().to_owned(),
    };
    format!("the credentials are right and {lacks}: {remedy}")
}

fn wrong_port(product: Product, base: &str) -> Option<String> {
    let right = product.port();
    let standard = base.rsplit_once(':').is_some_and(|(_, port)| port.trim_end_matches('/') == right.to_string());
    let plain = base.starts_with("http://");
    match (standard, plain) {
        (true, false) => None,
        (false, true) => {
            Some(format!("{} speaks https only, on port {right} unless it was told otherwise", product.name()))
        }
        (false, false) => Some(format!("{} listens on port {right} unless it was told otherwise", product.name())),
        (true, true) => Some(format!("{} speaks https only", product.name())),
    }
}

#[cfg(test)]
mod tests;
