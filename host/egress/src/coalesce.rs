//! Identical requests under way at the same time are sent once.
//!
//! The shared request belongs to no caller: it runs on the lane of whoever asked first and ends when the last one leaves.
//! Each caller keeps its own deadline and cap, and gets the answer masked for itself.

use crate::Error;
use crate::budget::Gauges;
use crate::exchange::{Plan, Progress, Raw};
use crate::pool::Route;
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
type UnderWay = (WeakShared<BoxFuture<'static, Answer>>, Weak<Progress>);

/// A request under way, as one of its callers holds it.
pub(crate) struct Flight {
    pub answer: SharedAnswer,
    pub progress: Arc<Progress>,
}

/// What makes two requests one: method, URL and headers after expansion, and the route. Targets of different kinds may share an answer.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    route: Route,
    head: bool,
    path_and_query: String,
    headers: Vec<(String, Vec<u8>)>,
}

/// Requests under way that others may join.
#[derive(Default)]
pub(crate) struct Flights {
    by_key: Mutex<HashMap<Key, UnderWay>>,
}

impl Flights {
    /// Joins the same request when it is under way, else sends this one on `lane`.
    pub(crate) fn join<F>(
        self: &Arc<Self>,
        plan: Plan,
        cap: usize,
        (lane, gauges): (&Handle, &Gauges),
        send: impl FnOnce(Plan, Arc<Progress>) -> F,
    ) -> Flight
    where
        F: Future<Output = Result<Raw, Error>> + Send + 'static,
    {
        let progress = Arc::new(Progress::new(cap));
        let Some(key) = key(&plan) else {
            let task = lane.spawn(send(plan, progress.clone()));
            return Flight { answer: shared(task), progress };
        };
        let mut flights = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((answer, progress)) = flights.get(&key)
            && let (Some(answer), Some(progress)) = (answer.upgrade(), progress.upgrade())
        {
            progress.cap.fetch_max(cap, Ordering::Relaxed);
            gauges.coalesced.fetch_add(1, Ordering::Relaxed);
            return Flight { answer, progress };
        }
        let landing = Landing { flights: self.clone(), key: key.clone(), progress: Arc::downgrade(&progress) };
        let sent = send(plan, progress.clone());
        let answer = shared(lane.spawn(async move {
            let _landing = landing;
            sent.await
        }));
        if let Some(weak) = answer.downgrade() {
            flights.insert(key, (weak, Arc::downgrade(&progress)));
        }
        Flight { answer, progress }
    }
}

/// GET and HEAD without a body change nothing and can be shared.
fn key(plan: &Plan) -> Option<Key> {
    if !plan.shared || !plan.method.is_safe() || !plan.body.is_empty() {
        return None;
    }
    let mut headers: Vec<(String, Vec<u8>)> =
        plan.headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect();
    headers.sort_unstable();
    Some(Key {
        route: Route::of(&plan.destination),
        head: plan.method == crate::Method::Head,
        path_and_query: plan.path_and_query.clone(),
        headers,
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

/// Takes a request off the list when it ends, however it ends.
struct Landing {
    flights: Arc<Flights>,
    key: Key,
    progress: Weak<Progress>,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut flights = self.flights.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if flights.get(&self.key).is_some_and(|(_, progress)| progress.ptr_eq(&self.progress)) {
            flights.remove(&self.key);
        }
    }
}
