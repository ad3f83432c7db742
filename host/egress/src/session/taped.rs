//! Sessions that record their exchanges or replay them.

use super::Session;
use crate::plan::{address, bad_path};
use crate::recording::{RecordedRequest, Tape};
use crate::{Authentication, ErrorClass, Exchanged, Request, requested};
use std::sync::atomic::Ordering;

impl Session {
    /// Sends a request and records its exchange, or answers it from a recording.
    pub(super) async fn exchange_and_record(&self, request: Box<Request>) -> Exchanged {
        let recorder = match &self.tape {
            Tape::Off => return self.answer(request).await,
            Tape::Record(recorder) => recorder,
            Tape::Replay(player) => {
                let (method, path) = (request.method.clone(), request.path.clone());
                let exchanged = self.answer(request).await;
                if exchanged
                    .result
                    .as_ref()
                    .is_err_and(|error| matches!(error.class(), ErrorClass::Denied | ErrorClass::InvalidArgument))
                {
                    player.refused(method.as_str(), &self.recorded_url(&path));
                }
                return exchanged;
            }
        };
        let url = self.recorded_url(&request.path);
        if self.requests.load(Ordering::Relaxed) >= self.limits.requests {
            // The request is refused unsent. It is not recorded, because a plugin may try this any number of times.
            return self.answer(request).await;
        }
        let (place, recorded) = (recorder.place(), self.recorded(&request, url));
        let exchanged = self.answer(request).await;
        let tls = match exchanged.number {
            Some(number) => self.tls_of(number).await,
            None => None,
        };
        recorder.keep(place, recorded, (&exchanged, tls));
        exchanged
    }

    /// The absolute URL of a request for a path, with its references.
    pub(super) fn requested_url(&self, path: &str) -> String {
        let requested =
            address((&self.grant, &self.references), path).and_then(|url| requested(&url).map_err(bad_path));
        requested.map_or_else(|_| path.to_owned(), |(origin, path)| format!("{origin}{path}"))
    }

    /// The URL of a request in a recording.
    pub(super) fn recorded_url(&self, path: &str) -> String {
        self.references.shown(&self.requested_url(path))
    }

    /// A request in a recording: with `${secret.NAME}` in place of its references.
    pub(super) fn recorded(&self, request: &Request, url: String) -> RecordedRequest {
        let shown = |(name, value): &(String, String)| (name.clone(), self.references.shown(value));
        let headers = request.headers.iter().map(shown).collect();
        let text = |body: &Vec<u8>| self.references.shown(&String::from_utf8_lossy(body)).into_bytes();
        let body = request.body.as_ref().map(text);
        let mut request = Request { headers, body, ..request.clone() };
        if let Some(Authentication::Basic(login) | Authentication::Digest(login)) = &mut request.authentication {
            login.user = self.references.shown(&login.user);
        }
        RecordedRequest::of(&request, url)
    }

    pub(super) fn is_replayed(&self) -> bool {
        matches!(self.tape, Tape::Replay(_))
    }
}
