//! The inputs of the notifier, made from the configuration and from known states.

use crate::prepare::Targets;
use crate::target::RuntimeTarget;
use catalog::PluginSet;
use config::{AlertsConfig, Config};
use model::{
    AlertRecord, Class, Delivery, DeliveryFilter, DeliveryState, DependencyState, Kind, Status, TargetId,
    nothing_checked,
};
use notify::{ChannelTraits, Finding, Health, Matcher, Matchers, Reading, Route, Settings, Silence, TargetSpec};
use sandbox::Role;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use store::{KnownState, ReadError, Store};

/// Up to about this many dependencies are compared faster than a map of their names is made.
const FEW: usize = 32;
/// Kinds of which one dependency says whether the target works, whatever the others say: a certificate is valid
/// although its server does not answer.
const MAIN: [(&str, &str); 1] = [("http", "response")];
/// The name of the route to the fallback channel. No route of the configuration can have it.
/// So many deliveries that were given up are remembered over a restart.
const GIVEN_UP: u32 = 100;
const FALLBACK: &str = "(fallback)";

/// The rules of notifying in a configuration.
#[derive(Clone, Debug)]
pub struct AlertRules {
    /// The settings of the notifier, without the properties of channels.
    settings: Settings,
    /// The channels, prepared.
    pub(crate) channels: Targets,
    /// The silences.
    pub(crate) silences: Vec<Silence>,
    /// The rules for the alerts of targets that do not say otherwise.
    defaults: AlertsConfig,
}

impl AlertRules {
    /// Takes the rules from a configuration, with its channels.
    pub fn of(config: &Config, channels: Targets) -> Self {
        let device = config.fleet.as_ref().map(|fleet| fleet.device.clone()).filter(|device| !device.is_empty());
        let fallback = config.alerts.fallback.as_ref().map(|channel| {
            let of_channels = Matcher::new("class", Class::Channel.as_str()).expect("the constant is a valid matcher");
            let route = Route::new(FALLBACK, Matchers(vec![of_channels]), vec![channel.clone()]);
            Route { is_continued: true, ..route }
        });
        let settings = Settings {
            routes: fallback.into_iter().chain(config.routes.iter().cloned()).collect(),
            channels: BTreeMap::new(),
            confirm: config.alerts.confirm,
            recover: config.alerts.recover,
            parent_wait: config.alerts.parent_wait,
            startup_grace: config.alerts.startup_grace,
            installation: device.unwrap_or_else(|| "polliwog".to_owned()),
            address: config.alerts.address.clone(),
            standby: config.standby.clone(),
        };
        Self { settings, channels, silences: config.silences.clone(), defaults: config.alerts.clone() }
    }

    /// Returns the settings of the notifier. Plugins decide the properties of channels.
    pub(crate) fn settings(&self, plugins: &PluginSet) -> Settings {
        let traits = |target: &RuntimeTarget| {
            let served = plugins.get(&target.config.kind);
            let role = served.map(|served| served.plugin.descriptor().role);
            ChannelTraits { needs_every_alert: role == Some(Role::Notifier { needs_every_alert: true }) }
        };
        let channels = self.channels.iter().map(|(id, target)| (id.to_string(), traits(target)));
        Settings { channels: channels.collect(), ..self.settings.clone() }
    }

    /// Describes a target for the notifier.
    pub(crate) fn spec(&self, target: &RuntimeTarget) -> TargetSpec {
        let config = &target.config;
        TargetSpec {
            id: config.id.clone(),
            traits: Arc::new(config.traits()),
            host: Some(target.grant.origins[0].origin.host.to_string()),
            confirm: config.alerts.confirm,
            recover: config.alerts.recover,
            depends_on: config.alerts.depends_on.clone(),
            is_enabled: config.enabled,
            alerts_on_warnings: config.alerts.warnings.unwrap_or(self.defaults.warnings),
            unknown_after: config.alerts.unknown_after.unwrap_or(self.defaults.unknown_after),
            missing_after: config.alerts.missing_after.unwrap_or(self.defaults.missing_after),
            was_down: KnownReading::new(&target.known(), &config.kind).is_down(),
        }
    }
}

/// The rules of alerts, with the alerts and the deliveries from before a restart.
pub struct Alerting {
    pub(crate) rules: AlertRules,
    pub(crate) records: Vec<Arc<AlertRecord>>,
    /// The deliveries that waited.
    pub(crate) waiting: Vec<Delivery>,
    /// The last ones that were given up.
    pub(crate) given_up: Vec<Delivery>,
    /// The number of the last notification.
    pub(crate) last: u64,
    /// Channels that are not configured any more, for which a plugin stored something.
    pub(crate) removed: Vec<String>,
}

impl Alerting {
    /// Reads alerts and deliveries from the database.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn restored(rules: AlertRules, store: &Store) -> Result<Self, ReadError> {
        let (waiting, last) = store.reader().waiting_deliveries()?;
        let mut removed = Vec::new();
        for (name, (kind, values)) in store.reader().channel_values()? {
            let channel = rules.channels.iter().find(|(id, _)| id.as_str() == name).map(|(_, channel)| channel);
            match channel.filter(|channel| channel.config.kind.as_str() == kind) {
                Some(channel) => channel.known().values = values,
                None => removed.push(name),
            }
        }
        let filter = DeliveryFilter { state: Some(DeliveryState::Undeliverable), ..DeliveryFilter::default() };
        let given_up = store.reader().deliveries(&filter, GIVEN_UP)?;
        let records = store.reader().alerts()?.into_iter().map(Arc::new).collect();
        Ok(Self { rules, records, waiting, given_up, last, removed })
    }
}

/// Lets the restored alerts of a target share its properties, unless these changed meanwhile.
pub(crate) fn share_traits(alerts: &mut [Arc<AlertRecord>], specs: &[TargetSpec]) {
    let by_id: HashMap<&TargetId, &TargetSpec> = specs.iter().map(|spec| (&spec.id, spec)).collect();
    for alert in alerts {
        let spec = alert.subject.target().and_then(|target| by_id.get(target));
        if let Some(spec) = spec.filter(|spec| spec.traits == alert.traits) {
            Arc::make_mut(alert).traits = spec.traits.clone();
        }
    }
}

/// A known state as the notifier reads it.
pub(crate) struct KnownReading<'a> {
    known: &'a KnownState,
    kind: &'a Kind,
    /// The places of the dependencies, if there are many. Most reports have nothing unhealthy, and need no such map.
    places: OnceCell<HashMap<&'a str, usize>>,
}

impl<'a> KnownReading<'a> {
    /// `kind` is that of the target.
    pub(crate) fn new(known: &'a KnownState, kind: &'a Kind) -> Self {
        Self { known, kind, places: OnceCell::new() }
    }

    fn get(&self, name: &str) -> Option<&'a DependencyState> {
        let dependencies = &self.known.dependencies;
        if dependencies.len() <= FEW {
            return dependencies.iter().find(|dependency| dependency.record.reported.name == name);
        }
        let places = self.places.get_or_init(|| {
            let names = dependencies.iter().map(|dependency| dependency.record.reported.name.as_str());
            names.enumerate().map(|(place, name)| (name, place)).collect()
        });
        places.get(name).map(|place| &dependencies[*place])
    }

    fn present(&self) -> impl Iterator<Item = &'a DependencyState> {
        self.known.dependencies.iter().filter(|dependency| dependency.record.missing_since.is_none())
    }
}

fn health(DependencyState { record, volatile }: &DependencyState) -> Health {
    if let Some(since) = record.missing_since {
        return Health::Missing(since);
    }
    match record.reported.status {
        _ if volatile.is_expired => Health::Unknown,
        _ if record.reported.skipped => Health::Skipped,
        Status::Ok => Health::Healthy,
        Status::Unknown => Health::Unknown,
        status @ (Status::Warning | Status::Critical) => Health::Unhealthy(status),
    }
}

impl Reading for KnownReading<'_> {
    fn findings(&self) -> Vec<Finding<'_>> {
        let findings = self.known.dependencies.iter().filter_map(|dependency| {
            let reported = &dependency.record.reported;
            match health(dependency) {
                Health::Healthy | Health::Skipped | Health::Gone => None,
                health => Some(Finding {
                    dependency: &reported.name,
                    health,
                    title: reported.title.as_deref(),
                    message: reported.error_message.as_deref(),
                    link: reported.link.as_deref(),
                }),
            }
        });
        findings.collect()
    }

    fn empty(&self) -> Option<String> {
        nothing_checked(&self.known.dependencies, &self.known.warnings)
    }

    fn health(&self, dependency: &str) -> Health {
        self.get(dependency).map_or(Health::Gone, health)
    }

    fn runs_on(&self, dependency: &str) -> &[String] {
        let reported = self.get(dependency).map(|found| &found.record.reported);
        reported.filter(|reported| !reported.independent).map_or(&[], |reported| &reported.runs_on)
    }

    fn is_down(&self) -> bool {
        let is_critical = |found: &DependencyState| health(found) == Health::Unhealthy(Status::Critical);
        if let Some((_, main)) = MAIN.iter().find(|(kind, _)| *kind == self.kind.as_str()) {
            return self.get(main).is_some_and(is_critical);
        }
        self.present().next().is_some() && self.present().all(is_critical)
    }
}
