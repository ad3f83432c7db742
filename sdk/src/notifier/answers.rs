//! Answers of receivers: whether they took a message.

use crate::http::Response;
use crate::{CallError, Failure};

impl Response {
    /// Returns the response if its status is 2xx.
    ///
    /// # Errors
    /// The error for the status, if it is another one, with the beginning of the answer, in which most receivers say
    /// what they do not accept.
    pub fn accepted(self) -> Result<Self, CallError> {
        let of_channel = |failure: Failure| {
            let message = failure.message.replace("the target's", "the channel's");
            Failure { message, ..failure }
        };
        self.success().map_err(|error| error.map(of_channel))
    }

    /// Returns the response if the receiver says that it took the message. `is_taken` gets the text of the answer and
    /// its JSON, which is null for other texts. A status of 2xx alone is no proof: a log-in page, a captive portal or
    /// another service may answer at the URL of a channel.
    ///
    /// # Errors
    /// As [`Response::accepted`], and `not_delivered` if `is_taken` says no. An operator can correct that.
    pub fn confirmed(
        self,
        receiver: &str,
        is_taken: impl FnOnce(&str, &serde_json::Value) -> bool,
    ) -> Result<Self, CallError> {
        let response = self.accepted()?;
        let text = response.text();
        let json = serde_json::from_str(&text).unwrap_or_default();
        if is_taken(text.trim(), &json) {
            return Ok(response);
        }
        let status = response.status();
        let said = response.first_words().map_or_else(String::new, |words| format!(" ({words})"));
        let message = format!(
            "the answer {status}{said} is not the one with which {receiver} takes a message: check the channel's URL, \
             where a log-in page or another service may answer"
        );
        Err(CallError::misconfigured("not_delivered", message))
    }

    /// Returns whether the message is refused (4xx) with one of these phrases, which are in lower case: reasons that an
    /// operator can correct, such as a wrong key or an archived channel.
    pub fn is_refused_with(&self, phrases: &[&str]) -> bool {
        let text = || self.text().to_lowercase();
        (400..500).contains(&self.status()) && {
            let text = text();
            phrases.iter().any(|phrase| text.contains(phrase))
        }
    }

    /// Returns whether the body is a page for people, or a part of one. The declared type says nothing: many scripts
    /// declare HTML for every text.
    pub fn is_page(&self) -> bool {
        const BEGINS: [&str; 9] = ["<head>", "<body", "<form", "<p>", "<div", "<h1", "<title>", "<meta ", "<!--"];
        let text = self.text().trim_start().chars().take(4096).collect::<String>().to_ascii_lowercase();
        let has = |tags: &[&str]| tags.iter().any(|tag| text.contains(tag));
        let is_part = || BEGINS.iter().any(|tag| text.starts_with(tag)) && has(&["<title>", "<body", "<form"]);
        text.starts_with('<') && (has(&["<!doctype html", "<html"]) || is_part())
    }
}
