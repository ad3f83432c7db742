//! Several requests at once, and a report of those that were answered.

use super::{Request, Response, send_all};
use crate::{CallError, Dependency, Report};

/// The results of several concurrent requests. A partial report is more useful than a failed poll.
///
/// ```no_run
/// # use polliwog_sdk::http::{Request, fetch_all};
/// # use polliwog_sdk::{Dependency, Report};
/// let fetched = fetch_all(["mail", "print"].map(|queue| (queue, Request::get(format!("/queues/{queue}"))))).or_fail()?;
/// let mut report: Report = fetched.answered.iter().map(|(queue, _)| Dependency::ok(*queue)).collect();
/// fetched.note(&mut report, |queue| (*queue).to_owned());
/// # Ok::<(), polliwog_sdk::CallError>(())
/// ```
#[derive(Clone)]
pub struct Fetched<K> {
    /// The keys and 2xx responses, in the order of the requests.
    pub answered: Vec<(K, Response)>,
    /// The keys and failures of the other requests.
    pub failed: Vec<(K, CallError)>,
}

/// Sends several requests concurrently and separates the 2xx responses from the failures. Each request has a key that
/// identifies it.
pub fn fetch_all<K>(requests: impl IntoIterator<Item = (K, Request)>) -> Fetched<K> {
    let (keys, requests): (Vec<K>, Vec<Request>) = requests.into_iter().unzip();
    let mut fetched = Fetched { answered: Vec::new(), failed: Vec::new() };
    for (key, result) in keys.into_iter().zip(send_all(requests)) {
        match result.map_err(CallError::from).and_then(Response::success) {
            Ok(response) => fetched.answered.push((key, response)),
            Err(error) => fetched.failed.push((key, error)),
        }
    }
    fetched
}

impl<K> Fetched<K> {
    /// Returns this, unless all requests failed.
    ///
    /// # Errors
    /// The most relevant failure, if all requests failed: a transient one last.
    pub fn or_fail(mut self) -> Result<Self, CallError> {
        match self.worst() {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    /// Calls `read` with each response. If `read` fails, the response moves to the failed ones.
    ///
    /// # Errors
    /// The most relevant failure, if no response remains.
    pub fn read(&mut self, mut read: impl FnMut(&K, &Response) -> Result<(), CallError>) -> Result<(), CallError> {
        for (key, response) in std::mem::take(&mut self.answered) {
            match read(&key, &response) {
                Ok(()) => self.answered.push((key, response)),
                Err(error) => self.failed.push((key, error)),
            }
        }
        self.worst().map_or(Ok(()), Err)
    }

    /// Removes and returns the most relevant failure, a transient one last. `None` if a request was
    /// answered.
    fn worst(&mut self) -> Option<CallError> {
        if !self.answered.is_empty() || self.failed.is_empty() {
            return None;
        }
        let lasting = self.failed.iter().position(|(_, error)| !matches!(error, CallError::Transient(_)));
        Some(self.failed.swap_remove(lasting.unwrap_or(0)).1)
    }

    /// Adds the failed requests to a report: a warning, and a dependency with the status unknown.
    ///
    /// `name` returns the name of the dependency of a key, or a name prefix that ends in `/` if the request covers
    /// several dependencies. For a prefix, the last known state of its dependencies is kept, and a dependency with the
    /// name of the prefix (`queue` for `queue/`) shows the state of the request itself, in each report.
    pub fn note(&self, report: &mut Report, name: impl Fn(&K) -> String) {
        for (key, _) in &self.answered {
            if let Some(part) = name(key).strip_suffix('/') {
                report.dependencies.push(Dependency::ok(part));
            }
        }
        for (key, error) in &self.failed {
            let name = name(key);
            let message = error.failure().message.as_str();
            report.warn(format!("{name}: {message}"));
            report.dependencies.push(Dependency::unknown(name.strip_suffix('/').unwrap_or(&name), message));
            if name.ends_with('/') {
                report.keep(name);
            }
        }
    }
}
