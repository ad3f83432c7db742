//! The page for a new target, and for another definition of one that was made this way.

use super::form::fields;
use super::shell::{banner, document, problems};
use crate::api::query::named;
use crate::auth::Auth;
use crate::error::ApiError;
use crate::state::Shared;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use model::{CommandError, KindDescription, TargetId};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The query of the page.
#[derive(Default, Deserialize)]
pub(super) struct Wanted {
    kind: Option<String>,
    /// The id of the target whose definition is changed.
    from: Option<String>,
}

/// The definition that is changed; of a new target, it is empty.
struct Existing {
    id: Option<TargetId>,
    members: Map<String, Value>,
}

impl Existing {
    /// A member, or a member of a member, as text.
    fn text(&self, path: &[&str]) -> String {
        let first = path.first().and_then(|key| self.members.get(*key));
        let found = path.iter().skip(1).try_fold(first.unwrap_or(&Value::Null), |value, key| value.get(key));
        match found {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
        }
    }

    /// A member that is a table of texts, as lines `NAME=VALUE`.
    fn pairs(&self, key: &str) -> String {
        let pairs = self.members.get(key).and_then(Value::as_object).into_iter().flatten();
        let lines: Vec<String> =
            pairs.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
        lines.join("\n")
    }

    fn settings(&self) -> Map<String, Value> {
        self.members.get("settings").and_then(Value::as_object).cloned().unwrap_or_default()
    }
}

pub(super) async fn page(State(shared): State<Shared>, headers: HeaderMap, Query(wanted): Query<Wanted>) -> Response {
    let csrf = Auth::csrf_of(&headers).unwrap_or_default();
    let (status, content) = match content(&shared, &wanted) {
        Ok(content) => (axum::http::StatusCode::OK, content),
        Err(error) => (
            error.status,
            html! { p.problem role="alert" { (error.message) } p { a href="/targets/new" { "All kinds" } } },
        ),
    };
    let title = if wanted.from.is_some() { "Change a target" } else { "New target" };
    let body = html! {
        (banner(title, None, shared.host.fleet().is_some()))
        main #content tabindex="-1" { (problems(&shared)) (content) }
    };
    (status, document(&format!("{title} – Polliwog"), Some(&csrf), &body)).into_response()
}

fn content(shared: &Shared, wanted: &Wanted) -> Result<Markup, ApiError> {
    let kinds = shared.host.kinds();
    let existing = match &wanted.from {
        None => Existing { id: None, members: Map::new() },
        Some(id) => {
            let id = named(id.clone())?;
            let kept = shared.host.definition(&id).and_then(|text| serde_json::from_str(&text).ok());
            let members = kept.ok_or_else(|| match shared.host.target(&id) {
                Some(_) => CommandError::InFile(format!("{id} is defined in the configuration file: change it there")),
                None => CommandError::NoTarget(id.to_string()),
            })?;
            Existing { id: Some(id), members }
        }
    };
    let kind = match (&wanted.kind, &existing.id) {
        (Some(kind), _) => kind.clone(),
        (None, Some(_)) => existing.text(&["kind"]),
        (None, None) => return Ok(choice(&kinds)),
    };
    let unknown = || CommandError::Invalid(format!("no plugin serves kind {kind:?}"));
    let kind = kinds.iter().find(|known| known.kind.as_str() == kind).ok_or_else(unknown)?;
    Ok(form(kind, &existing))
}

/// The first step: the kind.
fn choice(kinds: &[KindDescription]) -> Markup {
    html! {
        section.target {
            h2 { "Which kind of service is it?" }
            ul.plain {
                @for kind in kinds {
                    li { a href={ "/targets/new?kind=" (kind.kind) } { (kind.title) } " " small { (kind.kind) } p.note { (kind.summary) } }
                }
            }
            p.note { "Targets can also be written in the configuration file, which keeps them under version control." }
        }
    }
}

fn form(kind: &KindDescription, existing: &Existing) -> Markup {
    let schema: Value = serde_json::from_str(&kind.settings_schema).unwrap_or_default();
    let own = |path: &[&str]| existing.text(path);
    let save = existing.id.as_ref().map(|id| format!("/api/v1/targets/{id}"));
    let (method, save) = (if save.is_some() { "PUT" } else { "POST" }, save.unwrap_or("/api/v1/targets".to_owned()));
    html! {
        section.target {
            h2 { (kind.title) }
            p.note { (kind.summary) }
            form.fields data-path="/api/v1/target-tests" {
                input type="hidden" name="kind" value=(kind.kind);
                label { "id (required) " input name="id" value=[existing.id.as_ref()] readonly[existing.id.is_some()] required
                    pattern="[a-z0-9][a-z0-9_\\-]{0,62}" placeholder="shop" autocomplete="off"; small { "Small letters, digits, - and _." } }
                label { "url (required) " input name="url" type="url" value=(own(&["url"])) required placeholder="https://shop.example/"; }
                label { "name " input name="name" value=(own(&["name"])) placeholder="the id" autocomplete="off"; }
                label { "interval " input name="interval" value=(own(&["interval"])) placeholder="that of the kind, for example 30s"; }
                @for secret in &kind.secrets {
                    @let name = format!("secrets.{}", secret.name);
                    label { "secret " (secret.name) @if secret.required { " (required)" } " "
                        input name=(name) value=(own(&["secrets", &secret.name])) required[secret.required] placeholder="a name of [secrets] in the file" autocomplete="off";
                        small { (secret.description) } }
                }
                @if kind.secrets.is_empty() {
                    label { "secrets " textarea name="secrets" data-type="pairs" rows="2" placeholder="password=shop" { (existing.pairs("secrets")) }
                        small { "One NAME=SECRET in each line. SECRET is a name of [secrets] in the file." } }
                }
                label { "labels " textarea name="labels" data-type="pairs" rows="2" placeholder="site=zurich" { (existing.pairs("labels")) } small { "One NAME=VALUE in each line." } }
                label { "tls.fingerprint " input name="tls.fingerprint" value=(own(&["tls", "fingerprint"])) placeholder="trust only this certificate" autocomplete="off"; }
                fieldset {
                    legend { "Settings of the kind" }
                    (fields(&schema, &existing.settings()))
                }
                p {
                    button { "Test" } " "
                    button data-method=(method) data-path=(save) { "Save" } " "
                    button type="button" data-toml="" { "Show as TOML" }
                }
            }
            div.made role="status" {}
        }
    }
}
