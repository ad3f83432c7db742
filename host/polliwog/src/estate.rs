//! Targets at run time: what a configuration says, made ready to be polled.

use crate::plugins::{BUILT_IN, PluginSet};
use config::{Config, Limits, Problem, SecretSource, TargetConfig};
use egress::{Grant, Origin, OriginGrant, Reach, Secrets};
use model::{Kind, Sample, TargetId, Timestamp};
use sandbox::{Plugin, Sandbox, SettingsProblem};
use scheduler::{Change, TargetSpec};
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Facts, Known, PollFailure};

/// The longest secret, in bytes.
const SECRET: u64 = 64 << 10;
/// The timeout of a kind that nobody serves.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A target that can be polled.
#[derive(Debug)]
pub(crate) struct Target {
    /// What was written.
    pub config: TargetConfig,
    /// What its plugin is told.
    pub told: Arc<sandbox::Target>,
    /// What it may reach.
    pub grant: Arc<Grant>,
    /// What a poll of it may use.
    pub limits: Limits,
    /// How long a poll may take.
    pub timeout: Duration,
    /// The base interval of its kind.
    pub kind_interval: Option<Duration>,
    /// The digest of the plugin that it was made ready for.
    pub plugin: Option<[u8; 32]>,
    /// A hash of what makes it another target.
    pub identity: i64,
    /// A hash of its secrets' values and its certificates' authorities as they are now; never leaves this process.
    material: [u8; 32],
    known: Arc<Mutex<Known>>,
    published: Arc<Mutex<Published>>,
    frozen: AtomicBool,
    /// Polls in a row that this host had no slot for.
    skipped: AtomicU32,
}

/// What of a target is on disk, and so may be shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    /// Its dependencies.
    pub facts: Vec<Arc<Facts>>,
    /// The warnings of its last report.
    pub warnings: Vec<String>,
    /// Why its last poll failed.
    pub failure: Option<PollFailure>,
    /// Since when what is known is stale.
    pub stale_since: Option<Timestamp>,
    /// What its plugin reported as numbers.
    pub samples: Arc<Vec<Sample>>,
}

impl Published {
    /// What is known now, to be shown once it is on disk.
    pub(crate) fn of(known: &Known, samples: Arc<Vec<Sample>>) -> Self {
        Self {
            facts: known.dependencies.iter().map(|dependency| dependency.facts.clone()).collect(),
            warnings: known.warnings.clone(),
            failure: known.failure.clone(),
            stale_since: known.stale_since,
            samples,
        }
    }
}

impl Target {
    /// Counts polls in a row that were skipped because this host had no free slot, and logs at 2, 4, 8, … of them. No other
    /// surface shows a skipped poll.
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

    /// What is known, results that are not yet on disk included.
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up what was known before a restart.
    pub(crate) fn restore(&self, known: Known) {
        *self.published() = Published::of(&known, Arc::default());
        *self.known() = known;
    }

    /// What may be shown.
    pub(crate) fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known stays known when a target becomes another one while the host runs. Where a poll of what it was says
    /// nothing of what it is, what is known is copied when the change is taken up: see [`Self::take_over_from`].
    fn succeeding(self, before: &Self) -> Self {
        if matches!(self.change_from(before), Change::Reset | Change::PollNow) {
            return self;
        }
        Self { known: before.known.clone(), published: before.published.clone(), ..self }
    }

    /// The same target with another interval or cadence, enabled or not.
    fn rescheduled(before: &Self, written: &TargetConfig) -> Self {
        Self {
            config: written.clone(),
            told: before.told.clone(),
            grant: before.grant.clone(),
            limits: before.limits.clone(),
            plugin: before.plugin,
            timeout: before.timeout,
            kind_interval: before.kind_interval,
            identity: before.identity,
            material: before.material,
            known: before.known.clone(),
            published: before.published.clone(),
            frozen: AtomicBool::new(false),
            skipped: AtomicU32::default(),
        }
    }

    /// The same target of a kind that nobody serves any more.
    fn unserved(before: &Self) -> Self {
        let timeout = before.config.timeout.unwrap_or(TIMEOUT);
        Self { plugin: None, kind_interval: None, timeout, ..Self::rescheduled(before, &before.config) }
    }

    /// Takes over what is known, unless it is shared; a poll of what the target was learns nothing from then on.
    pub(crate) fn take_over_from(&self, before: &Self) {
        if Arc::ptr_eq(&self.known, &before.known) {
            return;
        }
        let (known, published) = (before.freeze(), before.published().clone());
        (*self.known(), *self.published()) = (known, published);
    }

    /// Nothing more is learnt of it; gives what is known.
    pub(crate) fn freeze(&self) -> Known {
        let known = self.known();
        self.frozen.store(true, Ordering::Relaxed);
        known.clone()
    }

    /// Whether nothing more is learnt of it. To be asked with what is known locked.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed)
    }

    /// Whether it reads something that may change while its configuration stays the same.
    fn reads_files(&self) -> bool {
        self.config.files().next().is_some()
    }

    /// What becoming this one means for the schedule of `before`.
    pub(crate) fn change_from(&self, before: &Self) -> Change {
        let polled = |target: &Self| (target.config.settings.clone(), target.limits.clone(), target.timeout);
        let scheduled = |target: &Self| {
            let config = &target.config;
            (config.interval, config.cadence, config.min_interval, config.max_interval, target.kind_interval)
        };
        if self.identity != before.identity || self.material != before.material {
            Change::Reset
        } else if polled(self) != polled(before) {
            Change::PollNow
        } else if scheduled(self) != scheduled(before) {
            Change::Requeue
        } else {
            Change::Nothing
        }
    }

    /// Its id.
    pub(crate) fn id(&self) -> &TargetId {
        &self.config.id
    }

    /// The target as the scheduler needs to know it.
    pub(crate) fn spec(&self) -> TargetSpec {
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

/// Whether secrets and certificates are read again of targets that are as they were before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Files {
    /// The configuration was read again, and so is what it names.
    Reread,
    /// Only settings changed.
    Kept,
}

/// Makes every target of a configuration ready; every problem there is. Those that are as they were before are kept.
pub(crate) async fn build(
    config: &Config,
    (sandbox, plugins): (&Sandbox, &PluginSet),
    before: &BTreeMap<TargetId, Arc<Target>>,
    files: Files,
) -> Result<Vec<Arc<Target>>, Vec<Problem>> {
    let (mut targets, mut problems) = (Vec::new(), Vec::new());
    // Thousands of targets have the same settings; a plugin says the same of all of them.
    let mut checked: HashMap<(&Kind, String), Vec<SettingsProblem>> = HashMap::new();
    let mut unable: HashSet<&Kind> = HashSet::new();
    for written in &config.targets {
        let place = format!("{}:{}", config.file, written.line);
        let limits = config.limits.get(&written.kind).cloned().unwrap_or_default();
        let plugin = plugins.get(&written.kind).map(|served| &served.plugin);
        let fits = |before: &Target| before.limits == limits && before.plugin == plugin.map(Plugin::digest);
        let before = before.get(&written.id);
        let same = |before: &&Arc<Target>| fits(before) && before.config.is_same(written);
        let kept = before.filter(|before| files == Files::Kept || !before.reads_files());
        if let Some(same) = kept.filter(same) {
            targets.push(same.clone());
            continue;
        }
        if let Some(before) = kept.filter(|before| fits(before) && before.config.is_scheduled_otherwise(written)) {
            targets.push(Arc::new(Target::rescheduled(before, written)));
            continue;
        }
        if let (None, Some(before)) = (plugin, kept.filter(|b| b.limits == limits && b.config.is_same(written))) {
            // Nobody looks at its secrets, and taking a plugin away must not fail.
            targets.push(Arc::new(Target::unserved(before)));
            continue;
        }
        // Whose plugin it is matters where it is none of ours.
        let served_by = |message: String| match plugins.get(&written.kind) {
            Some(served) if served.source != BUILT_IN => {
                format!("{message} (kind {} is served by {})", written.kind, served.source)
            }
            _ => message,
        };
        match target(written, plugin, limits.clone()) {
            Ok(target) => targets.push(match before {
                Some(before) if same(&before) && target.material == before.material => before.clone(),
                Some(before) => Arc::new(target.succeeding(before)),
                None => Arc::new(target),
            }),
            Err(found) => {
                problems.extend(found.into_iter().map(|why| Problem { place: place.clone(), message: served_by(why) }));
            }
        }
        // A plugin that cannot check one target's settings is not asked about a thousand others.
        if let Some(plugin) = plugin.filter(|_| !unable.contains(&written.kind)) {
            let found = match checked.entry((&written.kind, written.settings.to_string())) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let found = sandbox.check_settings(plugin, &written.settings).await;
                    new.insert(found.unwrap_or_else(|why| {
                        unable.insert(&written.kind);
                        vec![SettingsProblem { setting: None, message: why }]
                    }))
                }
            };
            problems.extend(found.iter().map(|SettingsProblem { setting, message }| {
                let line = written.line_of(setting.as_deref());
                let message = served_by(format!("target {:?}: settings: {message}", written.id));
                Problem { place: format!("{}:{line}", config.file), message }
            }));
        }
    }
    if problems.is_empty() { Ok(targets) } else { Err(problems) }
}

/// Says of targets what their operator may not have meant.
pub(crate) fn warn_of<'a>(targets: impl Iterator<Item = &'a Arc<Target>>, plugins: &PluginSet) {
    for target in targets {
        let all = [&target.config.tls].into_iter().chain(target.config.also.iter().map(|also| &also.tls));
        if all.into_iter().any(|tls| tls.insecure) {
            tracing::warn!(
                "target {}: its certificate is NOT verified (tls.insecure): anybody between can read its secrets",
                target.id()
            );
        }
        if plugins.get(&target.config.kind).is_none() {
            tracing::warn!(
                "target {}: no plugin serves kind {}; it is polled once one is there and compiled",
                target.id(),
                target.config.kind
            );
        }
    }
}

/// Makes one target ready; every problem there is.
pub(crate) fn target(written: &TargetConfig, plugin: Option<&Plugin>, limits: Limits) -> Result<Target, Vec<String>> {
    let mut problems = Vec::new();
    let mut note = |why: String| problems.push(format!("target {:?}: {why}", written.id));
    let mut origins = Vec::new();
    let all = [(&written.url, &written.tls)].into_iter().chain(written.also.iter().map(|also| (&also.url, &also.tls)));
    for (url, tls) in all {
        match (Origin::of(url), tls.build()) {
            (Ok(origin), Ok(tls)) => origins.push(OriginGrant { origin, tls }),
            (origin, tls) => {
                origin.err().into_iter().for_each(|error| note(error.to_string()));
                tls.err().into_iter().for_each(|error| note(error.to_string()));
            }
        }
    }
    let values = secrets(written, plugin, &mut note);
    let material = material(&values, &origins);
    let secrets = Secrets::with_short(values, &written.short_secrets).map_err(|error| note(error.to_string()));
    let (true, Ok(secrets)) = (problems.is_empty(), secrets) else { return Err(problems) };
    let told = sandbox::Target {
        id: written.id.clone(),
        name: written.name.clone(),
        url: written.url.to_string(),
        also: written.also.iter().map(|also| also.url.to_string()).collect(),
        labels: written.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        settings: written.settings.to_string(),
        secrets: secrets.names().map(str::to_owned).collect(),
    };
    let descriptor = plugin.map(Plugin::descriptor);
    let narrowing = limits.narrowing.clone();
    let mut identity = format!("{:?} {:?} {:?}", written.also, written.tls, written.secrets);
    if let Some(host) = &written.host_header {
        identity.push_str(host);
    }
    let host = written.host_header.clone();
    Ok(Target {
        told: Arc::new(told),
        grant: Arc::new(Grant {
            base: written.url.clone(),
            origins,
            reach: Reach::Everywhere,
            secrets,
            narrowing,
            host,
        }),
        plugin: plugin.map(Plugin::digest),
        limits,
        timeout: written.timeout.or(descriptor.map(|d| d.default_timeout)).unwrap_or(TIMEOUT),
        kind_interval: descriptor.map(|d| d.default_interval),
        identity: hash(&[written.url.as_str(), written.kind.as_str(), &identity]),
        material,
        known: Arc::default(),
        published: Arc::default(),
        frozen: AtomicBool::new(false),
        skipped: AtomicU32::default(),
        config: written.clone(),
    })
}

fn material(values: &BTreeMap<String, SecretString>, origins: &[OriginGrant]) -> [u8; 32] {
    use secrecy::ExposeSecret;
    let mut hasher = Sha256::new();
    for (name, value) in values {
        hasher.update(name);
        hasher.update([0]);
        hasher.update(value.expose_secret());
        hasher.update([0]);
    }
    for origin in origins {
        hasher.update(format!("{:?}", origin.tls));
    }
    hasher.finalize().into()
}

fn secrets(
    written: &TargetConfig,
    plugin: Option<&Plugin>,
    note: &mut impl FnMut(String),
) -> BTreeMap<String, SecretString> {
    let mut values = BTreeMap::new();
    for (name, source) in &written.secrets {
        match read_secret(source) {
            Ok(value) => drop(values.insert(name.clone(), value)),
            Err(why) => note(format!("the secret {name:?}: {why}")),
        }
    }
    for spec in plugin.map(|plugin| plugin.descriptor().secrets.as_slice()).unwrap_or_default() {
        use secrecy::ExposeSecret;
        match (values.get(&spec.name), &spec.pattern) {
            (None, _) if spec.required && !written.secrets.contains_key(&spec.name) => {
                let given: Vec<&str> = written.secrets.keys().map(String::as_str).collect();
                let given = if given.is_empty() { String::new() } else { format!(" (it has {})", given.join(", ")) };
                note(format!("it needs the secret {:?}: {}{given}", spec.name, spec.description));
            }
            (Some(value), Some(pattern)) if !pattern.is_match(value.expose_secret()) => {
                let hint = spec.hint.as_deref().unwrap_or("it does not have the expected form");
                let bare = value.expose_secret().trim_matches(|c: char| c.is_whitespace() || "\u{feff}\"'".contains(c));
                // Nobody sees those.
                let around = if bare.is_empty() {
                    "it is empty; "
                } else if pattern.is_match(bare) {
                    "it has blanks, quotes or a byte order mark around it, which do not belong to it; "
                } else {
                    ""
                };
                note(format!("the secret {:?}: {around}{hint}", spec.name));
            }
            _ => {}
        }
    }
    values
}

/// A secret's value, or in one sentence why there is none.
pub(crate) fn read_secret(source: &SecretSource) -> Result<SecretString, String> {
    match source {
        SecretSource::Variable(variable) => std::env::var(variable)
            .map(SecretString::from)
            .map_err(|_| format!("the environment variable {variable} is not set, or is no UTF-8")),
        SecretSource::File(file) => {
            let text = crate::common::read_text(file, SECRET)?;
            let value = text.strip_suffix('\n').unwrap_or(&text);
            Ok(SecretString::from(value.strip_suffix('\r').unwrap_or(value)))
        }
        SecretSource::Simulated(value) => Ok(SecretString::from(*value)),
    }
}
