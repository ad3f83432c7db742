//! The results of signatures.

use crate::Error;
use std::collections::BTreeMap;

/// The results of the signatures of one request. They are never printed.
#[derive(Default)]
pub(crate) struct Signed(BTreeMap<String, Output>);

/// The result of a signature.
pub(crate) enum Output {
    Raw(Vec<u8>),
    Text(String),
}

impl Signed {
    /// Adds a result. Returns the earlier one of this name.
    pub(crate) fn insert(&mut self, name: String, output: Output) -> Option<Output> {
        self.0.insert(name, output)
    }

    /// Returns the result of a signature as a part of another one.
    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        Some(match self.0.get(name)? {
            Output::Raw(bytes) => bytes,
            Output::Text(text) => text.as_bytes(),
        })
    }

    /// Returns the result of a signature as a part of the request.
    pub(crate) fn text(&self, name: &str) -> Result<&str, Error> {
        match self.0.get(name) {
            Some(Output::Text(text)) => Ok(text),
            Some(Output::Raw(_)) => Err(Error::BadRequest(format!(
                "it refers to signature.{name}, whose encoding is raw: that is for other signatures only"
            ))),
            None => Err(Error::BadRequest(format!("it refers to signature.{name}, which it does not have"))),
        }
    }

    /// Returns the results as they can occur in a request.
    pub(crate) fn into_texts(self) -> impl Iterator<Item = String> {
        self.0.into_values().filter_map(|output| match output {
            Output::Text(text) => Some(text),
            Output::Raw(_) => None,
        })
    }
}
