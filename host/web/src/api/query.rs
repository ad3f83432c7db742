//! Parts of requests that resources share: ids in paths, queries, pages of lists, and bodies.

use crate::error::ApiError;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use model::{CommandError, TargetId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::IntoParams;

/// The default and the maximum number of entries of a list in one response.
const PAGE: usize = 1000;

/// The target in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
pub(crate) struct TargetPath {
    /// The id of a target.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,62}$")]
    id: String,
}

/// The page of a list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// The maximum number of entries; the default is 1000.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<usize>,
    /// The `next` of the previous page.
    pub cursor: Option<String>,
}

/// A query, or why it is invalid.
pub(crate) type Queried<T> = Result<Query<T>, QueryRejection>;

/// An error that a field of a request is wrong.
pub(crate) fn wrong(field: &'static str, message: impl Into<String>) -> ApiError {
    ApiError { field: Some(field), ..ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message) }
}

/// Parses a target id from a path. Fails if it is not a valid id.
pub(crate) fn named(id: String) -> Result<TargetId, ApiError> {
    TargetId::new(&id).map_err(|_| CommandError::NoTarget(id).into())
}

/// Returns the parameters of a query. Fails if one is unknown or has the wrong type.
pub(crate) fn queried<T>(query: Queried<T>) -> Result<T, ApiError> {
    query.map(|Query(query)| query).map_err(|error| {
        let why = error.body_text();
        let why = why.rsplit_once("query string: ").map_or(why.as_str(), |(_, why)| why);
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", format!("invalid query: {why}"))
    })
}

/// Parses the body of a request as JSON, whatever its content type. `form` says what it must be.
pub(crate) fn body<T: DeserializeOwned>(bytes: &[u8], form: &str) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_body", format!("the body must be {form}: {error}"))
    })
}

/// Parses a request's body as a JSON object, whatever its content type.
pub(crate) fn object(bytes: &[u8]) -> Result<Map<String, Value>, ApiError> {
    body(bytes, "a JSON object")
}

/// Returns the number of entries of a page. Fails if it is not allowed.
pub(crate) fn checked_limit(limit: Option<usize>) -> Result<usize, ApiError> {
    match limit.unwrap_or(PAGE) {
        limit @ 1..=PAGE => Ok(limit),
        _ => Err(wrong("limit", format!("the limit must be from 1 to {PAGE}"))),
    }
}

/// A page of a list.
pub(crate) struct Page<T> {
    /// The number of entries on all pages.
    pub total: usize,
    /// The cursor of the next page; `None` if this is the last.
    pub next: Option<String>,
    pub entries: Vec<T>,
}

/// Returns a page of the entries, which are in the order of their keys: those after the cursor.
///
/// The cursor is the key of the last entry of the page before. An entry that comes or goes between two requests
/// neither repeats nor skips another one.
pub(crate) fn page<T, K: Ord>(
    entries: Vec<T>,
    key: impl Fn(&T) -> K,
    cursor: (impl Fn(&T) -> String, Option<K>),
    limit: Option<usize>,
) -> Result<Page<T>, ApiError> {
    let (to_cursor, after) = cursor;
    let limit = checked_limit(limit)?;
    let total = entries.len();
    let mut rest = entries.into_iter().filter(|entry| after.as_ref().is_none_or(|after| key(entry) > *after));
    let entries: Vec<T> = rest.by_ref().take(limit).collect();
    let next = rest.next().and_then(|_| entries.last().map(to_cursor));
    Ok(Page { total, next, entries })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(all: &[u32], after: Option<u32>, limit: usize) -> (Vec<u32>, Option<String>) {
        let found = page(all.to_vec(), |n| *n, (u32::to_string, after), Some(limit)).ok().unwrap();
        assert_eq!(found.total, all.len());
        (found.entries, found.next)
    }

    #[test]
    fn pages_neither_repeat_nor_skip_entries() {
        let all: Vec<u32> = (1..=7).collect();
        assert_eq!(numbers(&all, None, 3), (vec![1, 2, 3], Some("3".to_owned())));
        // The entry of the cursor went, and another one came before it.
        assert_eq!(numbers(&[0, 1, 2, 4, 5, 6, 7], Some(3), 3), (vec![4, 5, 6], Some("6".to_owned())));
        assert_eq!(numbers(&all, Some(6), 3), (vec![7], None));
        assert_eq!(numbers(&all, Some(4), 3), (vec![5, 6, 7], None));
        assert_eq!(numbers(&all, Some(9), 3), (vec![], None));
        for limit in [0, PAGE + 1] {
            assert!(page(all.clone(), |n| *n, (u32::to_string, None), Some(limit)).is_err());
        }
    }
}
