//! The description of the API, OpenAPI 3.1.

use crate::error::ErrorWire;
use crate::state::Shared;
use axum::Router;
use axum::body::Bytes;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use utoipa::openapi::path::{HttpMethod, Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, ResponseBuilder};
use utoipa::{OpenApi as _, ToSchema};

/// The parts of the description that belong to no handler.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Polliwog", description = "The targets, dependencies, history and settings of a Polliwog host.", license(name = "Apache-2.0")),
    security(("token" = [])),
    components(schemas(ErrorWire))
)]
struct Start;

/// The description without its operations.
pub(super) fn start() -> OpenApi {
    let mut description = Start::openapi();
    let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    description.components.get_or_insert_default().add_security_scheme("token", token);
    description
}

/// Adds what all operations have in common: the errors, and that a client may have the answer already.
pub(super) fn complete(mut description: OpenApi) -> OpenApi {
    for (path, item) in &mut description.paths.paths {
        let is_guarded = path.starts_with("/api/");
        for (method, operation) in operations(item) {
            // The names of handlers are unique in their file only.
            let resource = operation.tags.iter().flatten().next().map(|tag| tag.replace(' ', "_"));
            let name = operation.operation_id.take().unwrap_or_default();
            operation.operation_id = Some(format!("{}_{name}", resource.unwrap_or_default()));
            if is_guarded {
                common(&method, operation, path);
            }
        }
    }
    description
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (HttpMethod, &mut Operation)> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    let methods = [
        (HttpMethod::Get, get),
        (HttpMethod::Put, put),
        (HttpMethod::Post, post),
        (HttpMethod::Delete, delete),
        (HttpMethod::Patch, patch),
    ];
    methods.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

fn common(method: &HttpMethod, operation: &mut Operation, path: &str) {
    let (has_body, has_place) = (operation.request_body.is_some(), path.contains('{'));
    let is_read = *method == HttpMethod::Get;
    let errors = [
        (400, "The request is wrong: what, and how to correct it.", true),
        (401, "A token is required.", true),
        (403, "The scope of the token does not allow it.", true),
        (404, "There is no such thing.", has_place),
        (409, "The state of the host does not allow it.", !is_read),
        (413, "The body is longer than 2 MiB.", has_body),
        (421, "The header Host does not name this host.", true),
        (429, "Too many wrong tokens.", true),
        (503, "The database does not answer.", true),
    ];
    for (status, description, _) in errors.into_iter().filter(|(.., applies)| *applies) {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ErrorWire::name()))).build();
        let response = ResponseBuilder::new().description(description).content("application/json", content).build();
        operation.responses.responses.insert(status.to_string(), response.into());
    }
    if is_read {
        let unchanged =
            ResponseBuilder::new().description("The client has this answer already (If-None-Match).").build();
        operation.responses.responses.insert("304".to_owned(), unchanged.into());
    }
}

/// Adds the route of the description.
pub(super) fn serve(routes: Router<Shared>, description: &OpenApi) -> Router<Shared> {
    let text = Bytes::from(description.to_json().unwrap_or_default());
    let show = async move || ([(header::CONTENT_TYPE, "application/json")], text.clone()).into_response();
    routes.route("/api/v1/openapi.json", get(show))
}
