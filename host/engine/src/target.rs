//! Runtime targets: a definition with everything that a poll needs, prepared once.

use crate::secrets;
use catalog::PluginSet;
use config::{Limits, OtlpConfig, TargetConfig};
use egress::{Grant, Origin, OriginGrant, Reach, Secrets, Tape};
use mail::{Account, PASSWORD, Settings};
use model::{Outcome, PluginValues, TargetId, Timestamp};
use sandbox::{AcceptedSettings, Done, Job, Plugin};
use scheduler::{Change, TargetSpec};
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Aliases, KnownState};

/// The timeout of a target whose kind has no plugin.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a channel to a mail server. Many delay their first answer, because most senders of spam do not wait.
const MAIL_TIMEOUT: Duration = Duration::from_secs(30);

/// The code of a poll that this host does not permit.
const DENIED: &str = "denied";

/// A target that can be polled.
#[derive(Debug)]
pub struct RuntimeTarget {
    /// The definition from the configuration.
    pub config: Arc<TargetConfig>,
    /// The data that the plugin receives.
    pub prepared: Arc<sandbox::Target>,
    /// The network access of its polls.
    pub grant: Arc<Grant>,
    /// The resource limits of a poll.
    pub limits: Limits,
    /// The timeout of a poll.
    pub timeout: Duration,
    /// The base interval of its kind.
    pub kind_interval: Option<Duration>,
    /// The digest of the plugin that it was prepared for.
    pub plugin: Option<[u8; 32]>,
    /// A hash of everything that identifies it: URL, kind, TLS, names of secrets.
    pub identity: i64,
    /// The version of the plugin's settings that its settings are written for; `None` if no plugin accepted them.
    pub(crate) settings_version: Option<u32>,
    /// The mail server, if it is a channel of kind `email`.
    pub(crate) account: Option<Arc<Account>>,
    /// A digest of its secrets' values and of its trusted authorities.
    secret_digest: [u8; 32],
    known: Arc<Mutex<KnownState>>,
    frozen: AtomicBool,
    /// The number of consecutive polls that were skipped because no slot was free.
    skipped: AtomicU32,
}

impl RuntimeTarget {
    /// Counts polls in a row that were skipped because this host had no free slot, and logs at 2, 4, 8, … of them. No
    /// other surface shows a skipped poll.
    pub(crate) fn note_skipped(&self, skipped: bool) {
        if !skipped {
            return self.skipped.store(0, Ordering::Relaxed);
        }
        let count = self.skipped.fetch_add(1, Ordering::Relaxed) + 1;
        if count > 1 && count.is_power_of_two() {
            tracing::warn!(
                "{} was not polled {count} times in a row, because other polls held all slots that it needs: raise max_in_flight or \
                 max_requests_per_host, or find out which targets are slow",
                self.id()
            );
        }
    }

    /// The known state, including results that are not on disk yet.
    pub fn known(&self) -> MutexGuard<'_, KnownState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the outcome of a poll for this target: its report, or the error that the report has in case it is not
    /// one of this target.
    pub fn judged(&self, outcome: Outcome) -> Outcome {
        self.known().judged(outcome)
    }

    /// Keeps the result of a poll that no driver started, and returns what it means for this target.
    pub fn keep(&self, done: Done, at: Timestamp) -> Done {
        let (outcome, _) = self.known().keep(done.outcome, done.stored.clone(), at, &Aliases::new());
        Done { outcome, ..done }
    }

    /// Restores the known state of an earlier run.
    pub fn restore(&self, known: KnownState) {
        *self.known() = known;
    }

    /// The target in place of `before`. They share the known state, unless polls of the old definition say nothing
    /// about the new one: then the state is copied when the change is applied, by [`Self::take_over_from`].
    pub(crate) fn succeeding(self, before: &Self) -> Self {
        if matches!(self.change_from(before), Change::Reset | Change::PollNow) {
            return self;
        }
        Self { known: before.known.clone(), ..self }
    }

    /// The target with the settings that its plugin accepted: converted to the present version, and with defaults.
    #[must_use]
    pub fn with_settings(mut self, accepted: &AcceptedSettings) -> Self {
        Arc::make_mut(&mut self.prepared).settings = accepted.complete.to_string();
        self.settings_version = Some(accepted.version);
        self
    }

    /// The same target with another interval or cadence, or enabled or disabled.
    pub(crate) fn rescheduled(before: &Self, written: &Arc<TargetConfig>) -> Self {
        Self {
            config: written.clone(),
            prepared: before.prepared.clone(),
            grant: before.grant.clone(),
            limits: before.limits.clone(),
            plugin: before.plugin,
            timeout: before.timeout,
            kind_interval: before.kind_interval,
            identity: before.identity,
            settings_version: before.settings_version,
            account: before.account.clone(),
            secret_digest: before.secret_digest,
            known: before.known.clone(),
            frozen: AtomicBool::new(false),
            skipped: AtomicU32::default(),
        }
    }

    /// The same target after its kind lost its plugin.
    pub(crate) fn unserved(before: &Self) -> Self {
        let timeout = before.config.timeout.unwrap_or(TIMEOUT);
        Self { plugin: None, kind_interval: None, timeout, ..Self::rescheduled(before, &before.config) }
    }

    /// Copies the known state of `before`, unless they share it. Polls of `before` that end later change nothing.
    pub(crate) fn take_over_from(&self, before: &Self) {
        if Arc::ptr_eq(&self.known, &before.known) {
            return;
        }
        let mut known = before.freeze();
        if self.config.kind != before.config.kind {
            // The values that a plugin stores are of no use to a plugin of another kind.
            known.values = PluginValues::default();
        }
        *self.known() = known;
    }

    /// Takes over what a plugin of the same kind stored for `before`.
    pub(crate) fn keep_values_of(&self, before: &Self) {
        if !Arc::ptr_eq(&self.known, &before.known) && self.config.kind == before.config.kind {
            let values = before.known().values.clone();
            self.known().values = values;
        }
    }

    /// Freezes the known state: polls that end later do not change it. Returns the state.
    pub(crate) fn freeze(&self) -> KnownState {
        let known = self.known();
        self.frozen.store(true, Ordering::Relaxed);
        known.clone()
    }

    /// Whether the known state is frozen. Call it while holding the lock of [`Self::known`].
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed)
    }

    /// Whether it was prepared from the same definition, plugin, secrets and certificates.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let prepared = |target: &Self| (target.limits.clone(), target.plugin, target.secret_digest);
        prepared(self) == prepared(other) && self.config.difference(&other.config) == config::Difference::None
    }

    /// Returns the effect of a change from `before` to this target on the schedule.
    pub(crate) fn change_from(&self, before: &Self) -> Change {
        fn polled(target: &RuntimeTarget) -> (&str, &Limits, Duration) {
            (&target.prepared.settings, &target.limits, target.timeout)
        }
        let scheduled = |target: &Self| {
            let config = &target.config;
            (config.interval, config.cadence, config.min_interval, config.max_interval, target.kind_interval)
        };
        if self.identity != before.identity || self.secret_digest != before.secret_digest {
            Change::Reset
        } else if polled(self) != polled(before) || self.config.reach != before.config.reach && before.is_denied() {
            Change::PollNow
        } else if scheduled(self) != scheduled(before) {
            Change::Requeue
        } else {
            Change::Nothing
        }
    }

    /// Whether the last poll failed because this host did not permit an address, and a list of networks says which it
    /// permits.
    pub(crate) fn is_denied(&self) -> bool {
        let is_listed = matches!(self.config.reach, Reach::Public { .. });
        is_listed && self.known().failure.as_ref().is_some_and(|failure| failure.code == DENIED)
    }

    /// Returns a poll of this target, for the sandbox.
    pub fn job(&self, plugin: &Plugin, now: Timestamp, tape: Tape) -> Job {
        Job {
            plugin: plugin.clone(),
            target: self.prepared.clone(),
            grant: self.grant.clone(),
            limits: self.limits.poll,
            timeout: self.timeout,
            now,
            tape,
            zone: None,
            stored: self.known().values.clone(),
        }
    }

    /// Returns the id.
    pub fn id(&self) -> &TargetId {
        &self.config.id
    }

    /// The target as the scheduler sees it.
    pub fn spec(&self) -> TargetSpec {
        let origin = &self.grant.origins[0].origin;
        TargetSpec {
            id: self.config.id.clone(),
            kind: self.config.kind.clone(),
            url_hash: hash(&[self.config.url.as_str()]) as u64,
            host: origin.host.clone(),
            origin: origin.to_string().into(),
            cadence: self.config.cadence,
            interval: self.config.interval,
            min: self.config.min_interval,
            max: self.config.max_interval,
            kind_interval: self.kind_interval,
            enabled: self.config.enabled,
        }
    }
}

/// The first eight bytes of a SHA-256, the same on every machine and in every version.
fn hash(parts: &[&str]) -> i64 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
        hasher.update([0]);
    }
    let digest = hasher.finalize();
    i64::from_be_bytes(digest[..8].try_into().expect("a SHA-256 has 32 bytes"))
}

/// Prepares one target.
///
/// # Errors
/// Every problem, in one sentence each.
pub fn runtime_target(
    written: &Arc<TargetConfig>,
    plugin: Option<&Plugin>,
    limits: Limits,
) -> Result<RuntimeTarget, Vec<String>> {
    let mut problems = Vec::new();
    let mut note = |why: String| problems.push(format!("{} {:?}: {why}", written.noun(), written.id));
    let mut origins = Vec::new();
    let all = [(&written.url, &written.tls)].into_iter().chain(written.also.iter().map(|also| (&also.url, &also.tls)));
    let schemes = plugin.map(|plugin| plugin.descriptor().schemes.as_slice()).unwrap_or_default();
    for (url, tls) in all {
        if !schemes.is_empty() && !schemes.iter().any(|scheme| scheme == url.scheme()) {
            let (kind, schemes) = (&written.kind, schemes.join(" or "));
            note(format!("{}: kind {kind} accepts URLs with {schemes} only", written.shown_url()));
            continue;
        }
        let origin = if written.is_email() { Origin::of_mail(url) } else { Origin::of(url) };
        match (origin, tls.build()) {
            (Ok(origin), Ok(tls)) => origins.push(OriginGrant { origin, tls }),
            (origin, tls) => {
                origin.err().into_iter().for_each(|error| note(error.to_string()));
                tls.err().into_iter().for_each(|error| note(error.to_string()));
            }
        }
    }
    let values = secrets::read_all(written, plugin, &mut note);
    let password = values.get(PASSWORD).cloned();
    let secret_digest = secrets::digest(&values, &origins);
    let secrets = Secrets::with_rules(values, secrets::rules(written, plugin)).map_err(|error| note(error.to_string()));
    let (true, Ok(secrets)) = (problems.is_empty(), secrets) else { return Err(problems) };
    let prepared = sandbox::Target {
        id: written.id.clone(),
        name: written.name.clone(),
        url: written.shown_url(),
        also: written.also.iter().map(|also| also.url.to_string()).collect(),
        labels: written.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        settings: written.settings.to_string(),
        secrets: secrets.names().map(str::to_owned).collect(),
    };
    let descriptor = plugin.map(Plugin::descriptor);
    let narrowing = limits.narrowing.clone();
    let mut identity = format!("{:?} {:?} {:?}", written.also, written.tls, written.secrets);
    identity.push_str(written.host_header.as_deref().unwrap_or_default());
    let host = written.host_header.clone();
    let expands_path = written.is_channel || written.permissions.in_path;
    let grant = Arc::new(Grant {
        base: written.url.clone(),
        origins,
        reach: written.reach.clone(),
        secrets,
        narrowing,
        host,
        reference_in_base: Some(written.shown_url()).filter(|url| expands_path && url.contains("${")),
        expands_path,
        short_captures: written.permissions.short_captures,
    });
    // The settings' problems are found where those of other kinds are.
    let settings = written.is_email().then(|| email_settings(written).ok()).flatten();
    let account = settings.map(|settings| Arc::new(Account { grant: grant.clone(), settings, password }));
    let default_timeout = if written.is_email() { MAIL_TIMEOUT } else { TIMEOUT };
    Ok(RuntimeTarget {
        prepared: Arc::new(prepared),
        grant,
        plugin: plugin.map(Plugin::digest),
        limits,
        timeout: written.timeout.or(descriptor.map(|d| d.default_timeout)).unwrap_or(default_timeout),
        account,
        kind_interval: descriptor.map(|d| d.default_interval),
        identity: hash(&[written.url.as_str(), written.kind.as_str(), &identity]),
        settings_version: None,
        secret_digest,
        known: Arc::default(),
        frozen: AtomicBool::new(false),
        skipped: AtomicU32::default(),
        config: written.clone(),
    })
}

/// Prepares the network access to a collector of OpenTelemetry.
///
/// # Errors
/// Every problem, in one sentence each.
pub fn collector_access(otlp: &OtlpConfig) -> Result<Arc<Grant>, Vec<String>> {
    let named = |problem: String| problem.replacen("channel otlp", "[otlp]", 1);
    let prepared = runtime_target(&otlp.collector, None, Limits::default());
    prepared.map(|target| target.grant).map_err(|problems| problems.into_iter().map(named).collect())
}

/// Reads the settings of a channel of kind `email`.
///
/// # Errors
/// Every problem.
pub(crate) fn email_settings(written: &TargetConfig) -> Result<Settings, Vec<mail::Problem>> {
    let is_tls = Origin::of_mail(&written.url).is_ok_and(|origin| origin.https);
    let unknown = written.secrets.keys().filter(|name| *name != PASSWORD).map(|name| mail::Problem {
        setting: None,
        message: format!("{name:?} is not a secret of kind email: use {PASSWORD}"),
    });
    let unknown: Vec<mail::Problem> = unknown.collect();
    if !unknown.is_empty() {
        return Err(unknown);
    }
    Settings::read(&written.settings, written.secrets.contains_key(PASSWORD), is_tls)
}

/// Logs warnings about targets: certificates that are not verified, and kinds without a plugin.
pub fn warn_about<'a>(targets: impl Iterator<Item = &'a Arc<RuntimeTarget>>, plugins: &PluginSet) {
    for target in targets {
        let all = [&target.config.tls].into_iter().chain(target.config.also.iter().map(|also| &also.tls));
        if all.into_iter().any(|tls| tls.insecure) {
            tracing::warn!(
                "{} {}: its certificate is NOT verified (tls.insecure): anyone on the way can read its secrets",
                target.config.noun(),
                target.id()
            );
        }
        if plugins.get(&target.config.kind).is_none() && !target.config.is_email() {
            let (noun, used) = if target.config.is_channel { ("channel", "used") } else { ("target", "polled") };
            tracing::warn!(
                "{noun} {}: no plugin serves kind {}; it will be {used} once a plugin is there and compiled",
                target.id(),
                target.config.kind
            );
        }
    }
}
