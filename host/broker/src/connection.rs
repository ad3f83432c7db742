//! The connection to the broker, and what is wrong with it.

use crate::diagnosis::diagnose;
use crate::jitter::Jitter;
use crate::link::Link;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event};
use fleet::LinkState;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// A half-open connection is noticed after this time. The client's default is a minute.
const PING: Duration = Duration::from_secs(10);
/// The time for connection, TLS and login with all servers. After an outage of the broker, thousands of agents connect
/// at once, and an attempt that is given up is work for the broker for nothing. The client's default is 5 s for
/// each server.
const CONNECT: Duration = Duration::from_secs(20);
/// The broker answers within this time, or the request failed.
const ANSWER: Duration = Duration::from_secs(5);
/// The delay before a further attempt to connect doubles from the first to the second of these, with jitter.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(6400));
/// The shortest time between two searches for the reason of the same failure. Each is one more connection for the
/// broker.
const SEARCH: Duration = Duration::from_secs(10);
/// The reason of a lost connection is searched for after this time.
const LOST_FOR: Duration = Duration::from_secs(3);
/// Shown until the reason is known.
const LOST: &str = "the connection is lost";
/// A problem that is back within this time is the same one: a step that fails follows others that work.
const SAME: Duration = Duration::from_secs(10);
/// The number of texts that are remembered so that each is logged once.
const LOGGED: usize = 64;
/// Messages that wait for a reader, for each subscription. Many agents run in one process in simulations.
const WAITING: usize = 4096;

/// A connection that is made again whenever it is lost.
#[derive(Clone)]
pub(crate) struct Connection {
    pub client: Client,
    pub context: Context,
    state: Arc<Mutex<Condition>>,
    /// Counts connections.
    connected: watch::Receiver<u64>,
}

impl Connection {
    /// Begins to connect. A broker that cannot be reached is tried again without end.
    ///
    /// # Errors
    /// If the URL is not valid.
    pub(crate) async fn open(link: &Link) -> Result<Self, String> {
        let state = Arc::new(Mutex::new(Condition::new(Instant::now())));
        let (count, connected) = watch::channel(0_u64);
        let jitter = Jitter::new(link.seed);
        let (noted, count) = (state.clone(), Arc::new(count));
        let losses = Losses::default();
        let diagnosis = Diagnosis { link: link.clone(), connected: connected.clone(), last: Arc::default() };
        let mut options = ConnectOptions::new()
            .name(&link.name)
            .retry_on_initial_connect()
            .ping_interval(PING)
            .connection_timeout(connect_within(link.servers().len()))
            .request_timeout(Some(ANSWER))
            .subscription_capacity(WAITING)
            .reconnect_delay_callback(move |attempt| jitter.delay(RECONNECT, attempt))
            .event_callback(move |event| {
                note(&noted, &event);
                if event == Event::Disconnected {
                    explain_later(&diagnosis, &noted);
                }
                if matches!(event, Event::SlowConsumer(_)) {
                    losses.warn();
                }
                if let Event::ClientError(error) = &event {
                    explain(&diagnosis, &noted, error.to_string());
                }
                if event == Event::Connected {
                    count.send_modify(|count| *count += 1);
                }
                std::future::ready(())
            });
        if let Some(tls) = &link.tls {
            options = options.tls_client_config(tls.clone());
        }
        if let Some(local) = link.local {
            options = options.local_address((local, 0).into());
        }
        if let Some((user, password)) = &link.credentials {
            // A client may subscribe to its own answers only.
            options =
                options.user_and_password(user.clone(), password.clone()).custom_inbox_prefix(format!("_INBOX_{user}"));
        }
        let client = options.connect(link.servers()).await.map_err(|error| format!("{}: {error}", link.url))?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(ANSWER);
        Ok(Self { client, context, state, connected })
    }

    /// Returns whether the broker can be reached.
    pub(crate) fn state(&self) -> LinkState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).shown(Instant::now())
    }

    /// Notes a problem of the broker that is not one of the connection; `None` if it is over.
    pub(crate) fn set_problem(&self, problem: Option<String>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).note(problem, Instant::now());
    }

    /// Returns a receiver that changes with each connection.
    pub(crate) fn connected(&self) -> watch::Receiver<u64> {
        self.connected.clone()
    }
}

/// Whether there is a connection, and what is wrong.
struct Condition {
    is_connected: bool,
    problem: Option<String>,
    /// The beginning of the problem, or of the last one.
    since: Instant,
    /// The end of the last problem.
    until: Instant,
    /// The texts that were logged since the problem began. Several steps fail each second, with different texts.
    logged: BTreeSet<String>,
}

impl Condition {
    /// Before the first connection.
    fn new(now: Instant) -> Self {
        Self {
            is_connected: false,
            problem: Some("not connected yet".to_owned()),
            since: now,
            until: now,
            logged: BTreeSet::new(),
        }
    }

    /// Sets the problem, and logs it if that was not logged since the problem began.
    fn note(&mut self, problem: Option<String>, now: Instant) {
        self.set(problem.clone(), now);
        if let Some(why) = problem.filter(|why| self.is_news(why)) {
            tracing::warn!("fleet: {why}");
        }
    }

    fn set(&mut self, problem: Option<String>, now: Instant) {
        match (&self.problem, &problem) {
            (Some(_), None) => self.until = now,
            (None, Some(_)) if now.duration_since(self.until) >= SAME => {
                self.since = now;
                self.logged.clear();
            }
            _ => {}
        }
        self.problem = problem;
    }

    /// Whether a text was not logged since the problem began.
    fn is_news(&mut self, why: &str) -> bool {
        if self.logged.len() >= LOGGED {
            self.logged.clear();
        }
        self.logged.insert(why.to_owned())
    }

    fn shown(&self, now: Instant) -> LinkState {
        let problem = self.problem.clone();
        let lasts = if problem.is_some() { now.duration_since(self.since) } else { Duration::ZERO };
        LinkState { is_connected: self.is_connected, problem, lasts }
    }
}

/// The time of the last warning of lost messages.
#[derive(Default)]
struct Losses(Mutex<Option<Instant>>);

impl Losses {
    /// Warns at most once a minute: the client reports each message that it drops.
    fn warn(&self) {
        const SILENCE: Duration = Duration::from_secs(60);
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= SILENCE) {
            *last = Some(Instant::now());
            tracing::warn!("messages of the fleet arrive faster than they are read; some are lost");
        }
    }
}

fn note(state: &Mutex<Condition>, event: &Event) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    match event {
        Event::Connected => {
            tracing::info!("connected to the broker of the fleet");
            state.is_connected = true;
            state.logged.clear();
            state.set(None, now);
        }
        Event::Disconnected => {
            if state.is_connected {
                tracing::warn!("the connection to the broker of the fleet is lost; it is tried again");
            }
            state.is_connected = false;
            state.set(Some(LOST.to_owned()), now);
        }
        // Refused rights arrive here only; the request that was refused times out.
        Event::ServerError(error) => {
            state.note(Some(format!("the broker refuses: {error}")), now);
        }
        _ => {}
    }
}

/// The time for an attempt to connect to one of several servers. One that does not answer must not delay the others for
/// longer than a lease lasts.
fn connect_within(servers: usize) -> Duration {
    (CONNECT / u32::try_from(servers.max(1)).unwrap_or(u32::MAX)).max(ANSWER)
}

/// The search for the reason why the broker cannot be reached.
#[derive(Clone)]
struct Diagnosis {
    link: Link,
    /// Counts connections.
    connected: watch::Receiver<u64>,
    /// The last search; locked while one runs.
    last: Arc<tokio::sync::Mutex<Option<Search>>>,
}

/// A search for the reason.
struct Search {
    ended: Instant,
    /// The failure in the client's words, and the number of connections before it.
    of: (String, u64),
}

impl Search {
    /// Whether it says nothing about this failure.
    fn is_outdated(&self, of: &(String, u64), now: Instant) -> bool {
        self.of != *of || now.duration_since(self.ended) >= SEARCH
    }
}

/// Notes why the connection was lost, if it is not back and no attempt to connect has failed after some seconds: an
/// attempt takes longer if the broker hangs.
fn explain_later(diagnosis: &Diagnosis, state: &Arc<Mutex<Condition>>) {
    let (diagnosis, state) = (diagnosis.clone(), state.clone());
    tokio::spawn(async move {
        // Not all hosts at once.
        tokio::time::sleep(LOST_FOR.mul_f64(Jitter::new(diagnosis.link.seed).between(1.0, 2.0))).await;
        let problem = state.lock().unwrap_or_else(PoisonError::into_inner).problem.clone();
        if problem.as_deref() == Some(LOST) {
            explain(&diagnosis, &state, LOST.to_owned());
        }
    });
}

/// Notes why the broker cannot be reached, unless that was searched for a moment ago.
fn explain(diagnosis: &Diagnosis, state: &Arc<Mutex<Condition>>, failure: String) {
    let Ok(mut last) = diagnosis.last.clone().try_lock_owned() else { return };
    let of = (failure, *diagnosis.connected.borrow());
    if last.as_ref().is_some_and(|last| !last.is_outdated(&of, Instant::now())) {
        return;
    }
    let (link, state, connected) = (diagnosis.link.clone(), state.clone(), diagnosis.connected.clone());
    tokio::spawn(async move {
        let text = format!("the broker cannot be reached: {}", diagnose(&link).await);
        // The reason is that of a connection before, if there was another one meanwhile.
        let is_current = *connected.borrow() == of.1;
        *last = Some(Search { ended: Instant::now(), of });
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if is_current && !state.is_connected {
            state.note(Some(text), Instant::now());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{TcpListener, TcpStream};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn link(url: String) -> Link {
        let keys = crate::seal::Keys::None;
        Link { url, credentials: None, keys, tls: None, local: None, name: "host".to_owned(), seed: 7 }
    }

    /// Accepts a connection, and sends what a server sends first.
    async fn greeted(server: &TcpListener) -> BufReader<TcpStream> {
        let mut stream = BufReader::new(server.accept().await.unwrap().0);
        let info = br#"INFO {"server_id":"x","version":"2.9.10","max_payload":1048576}"#;
        stream.get_mut().write_all(&[info, &b"\r\n"[..]].concat()).await.unwrap();
        stream
    }

    #[test]
    fn several_servers_share_the_time_of_an_attempt() {
        let seconds = [0, 1, 2, 4, 9].map(|servers| connect_within(servers).as_secs());
        assert_eq!(seconds, [20, 20, 10, 5, 5]);
    }

    #[test]
    fn a_problem_lasts_until_there_was_none_for_a_while() {
        let start = Instant::now();
        let mut condition = Condition::new(start);
        let problem = |text: &str| Some(text.to_owned());
        for (second, text, expected) in [
            (3, problem("refused"), Some(3)),
            (4, None, None),
            (5, problem("no answer"), Some(5)),
            (6, None, None),
            (16, problem("no answer"), Some(0)),
            (20, problem("refused"), Some(4)),
            (21, problem("no answer"), Some(5)),
        ] {
            let now = start + Duration::from_secs(second);
            condition.set(text.clone(), now);
            let shown = condition.shown(now);
            assert_eq!((shown.problem, shown.lasts.as_secs()), (text, expected.unwrap_or(0)), "after {second} s");
            let news = condition.problem.clone().map(|why| condition.is_news(&why));
            assert_eq!(news, expected.map(|_| second != 21), "{news:?} after {second} s");
        }
    }

    #[test]
    fn another_failure_or_another_connection_needs_another_search() {
        let of = |text: &str, connections| (text.to_owned(), connections);
        let ended = Instant::now();
        let search = Search { ended, of: of("IO error", 1) };
        let cases = [
            (of("IO error", 1), Duration::ZERO, false),
            (of("IO error", 1), SEARCH, true),
            (of("IO error", 2), Duration::ZERO, true),
            (of("timed out", 1), Duration::ZERO, true),
        ];
        for (of, later, expected) in cases {
            assert_eq!(search.is_outdated(&of, ended + later), expected, "{of:?} after {later:?}");
        }
    }

    /// Two of three servers accept connections and say nothing, like a process that is stopped.
    #[tokio::test]
    async fn silent_servers_do_not_prevent_the_connection_to_another_one() {
        let silent = [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
        let answering = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let urls = silent.iter().chain([&answering]).map(|server| format!("nats://{}", server.local_addr().unwrap()));
        let link = link(urls.collect::<Vec<_>>().join(","));
        let connection = Connection::open(&link).await.unwrap();
        let mut connected = connection.connected();
        let serve = async {
            let mut stream = greeted(&answering).await;
            let mut line = String::new();
            while line != "PING\r\n" {
                line.clear();
                stream.read_line(&mut line).await.unwrap();
            }
            stream.get_mut().write_all(b"PONG\r\n").await.unwrap();
            connected.changed().await.unwrap();
        };
        // The client tries them in a random order, so that both silent ones may be the first.
        tokio::time::timeout(connect_within(3) * 3 + PATIENCE, serve).await.unwrap();
        assert!(connection.state().is_connected);
    }

    /// A server that ends each connection gets one for each attempt, and not a second one for the reason.
    #[tokio::test]
    async fn the_reason_is_not_searched_at_each_attempt() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = link(format!("nats://{}", listener.local_addr().unwrap()));
        let began = Instant::now();
        let connection = Connection::open(&link).await.unwrap();
        let (mut attempts, mut searches) = (0, 0);
        let serve = async {
            while attempts < 5 {
                let mut stream = greeted(&listener).await;
                let mut login = String::new();
                stream.read_line(&mut login).await.unwrap();
                *if login.contains(r#""version":"0""#) { &mut searches } else { &mut attempts } += 1;
            }
        };
        tokio::time::timeout(PATIENCE, serve).await.unwrap();
        assert!((1..=1 + began.elapsed().as_secs() / SEARCH.as_secs()).contains(&searches), "{searches} searches");
        let problem = connection.state().problem.unwrap();
        assert!(problem.ends_with("ends the connection"), "{problem}");
    }
}
