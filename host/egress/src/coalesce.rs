//! Coalesces identical requests that are in flight at the same time: they are sent once.
//!
//! The shared request belongs to no single caller. It runs on the lane of the first caller and is cancelled when the
//! last caller drops it. Each caller keeps its own deadline and cap, and the answer is masked for each caller
//! separately.

use crate::Error;
use crate::budget::Gauges;
use crate::in_flight::{Plan, Progress, Raw};
use crate::message::only_reads;
use crate::pool::Route;
use foldhash::fast::RandomState;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

type Answer = Result<Arc<Raw>, Error>;
type SharedAnswer = Shared<BoxFuture<'static, Answer>>;
type InFlight = (WeakShared<BoxFuture<'static, Answer>>, Weak<Progress>);

/// A handle to a request in flight. Each caller has its own handle.
pub(crate) struct InFlightRequest {
    pub answer: SharedAnswer,
    pub progress: Arc<Progress>,
}

/// The caller of [`Coalescer::join`].
pub(crate) struct Caller<'a> {
    /// Bytes that the caller may read of the body.
    pub cap: usize,
    /// The runtime that sends the request if it cannot be joined to another one.
    pub lane: &'a Handle,
    pub gauges: &'a Gauges,
}

/// Identifies a request. Two requests are coalesced if they have the same method, URL, headers (with secrets inserted)
/// and route, and both read the body or neither does. Targets of different kinds may share an answer.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    route: Route,
    head: bool,
    reads_body: bool,
    /// The path and query, then the sorted headers, each part after its length.
    request: Vec<u8>,
}

/// The requests in flight that other callers can join.
#[derive(Default)]
pub(crate) struct Coalescer {
    by_key: Mutex<HashMap<Arc<Key>, InFlight, RandomState>>,
}

impl Coalescer {
    /// Joins an identical request in flight. Otherwise sends this request on the caller's lane.
    pub(crate) fn join<F>(
        self: &Arc<Self>,
        plan: Box<Plan>,
        caller: Caller<'_>,
        send: impl FnOnce(Box<Plan>, Arc<Progress>) -> F,
    ) -> InFlightRequest
    where
        F: Future<Output = Result<Raw, Error>> + Send + 'static,
    {
        let progress = Arc::new(Progress::new(caller.cap));
        let Some(key) = key(&plan).map(Arc::new) else {
            let task = caller.lane.spawn(send(plan, progress.clone()));
            return InFlightRequest { answer: shared(task), progress };
        };
        let mut in_flight = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((answer, progress)) = in_flight.get(&key)
            && let (Some(answer), Some(progress)) = (answer.upgrade(), progress.upgrade())
        {
            progress.cap.fetch_max(caller.cap, Ordering::Relaxed);
            caller.gauges.coalesced.fetch_add(1, Ordering::Relaxed);
            return InFlightRequest { answer, progress };
        }
        let guard = CoalesceGuard { coalescer: self.clone(), key: key.clone(), progress: Arc::downgrade(&progress) };
        let sent = send(plan, progress.clone());
        let answer = shared(caller.lane.spawn(async move {
            let _guard = guard;
            sent.await
        }));
        if let Some(weak) = answer.downgrade() {
            in_flight.insert(key, (weak, Arc::downgrade(&progress)));
        }
        InFlightRequest { answer, progress }
    }
}

/// Returns the key of a request that can be shared, otherwise `None`. Only GET and HEAD without a body can be shared,
/// because they change nothing.
fn key(plan: &Plan) -> Option<Key> {
    if !plan.shared || !only_reads(&plan.method) || !plan.body.is_empty() {
        return None;
    }
    let mut headers: Vec<(&[u8], &[u8])> =
        plan.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())).collect();
    headers.sort_unstable();
    let parts = [plan.path_and_query.as_bytes()].into_iter().chain(headers.iter().flat_map(|(n, v)| [*n, *v]));
    let mut request = Vec::with_capacity(256);
    for part in parts {
        request.extend_from_slice(&part.len().to_le_bytes());
        request.extend_from_slice(part);
    }
    Some(Key {
        route: Route::of(&plan.destination),
        head: plan.method == crate::Method::HEAD,
        reads_body: !plan.visible.is_nothing(),
        request,
    })
}

fn shared(task: JoinHandle<Result<Raw, Error>>) -> SharedAnswer {
    struct AbortOnDrop(JoinHandle<Result<Raw, Error>>);
    impl Drop for AbortOnDrop {
        fn drop(&mut self) {
            self.0.abort();
        }
    }
    let mut task = AbortOnDrop(task);
    async move {
        match (&mut task.0).await {
            Ok(result) => result.map(Arc::new),
            Err(error) => Err(Error::Protocol { name: "the host".to_owned(), why: error.to_string() }),
        }
    }
    .boxed()
    .shared()
}

/// Removes a request from the [`Coalescer`] when it ends for any reason.
struct CoalesceGuard {
    coalescer: Arc<Coalescer>,
    key: Arc<Key>,
    progress: Weak<Progress>,
}

impl Drop for CoalesceGuard {
    fn drop(&mut self) {
        let mut in_flight = self.coalescer.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if in_flight.get(&self.key).is_some_and(|(_, progress)| progress.ptr_eq(&self.progress)) {
            in_flight.remove(&self.key);
        }
    }
}
