//! A loaded plugin and its descriptor.

use crate::CONTRACT_VERSIONS;
use crate::host::State;
use crate::host::v0_1::{definition, notifier, poller, session, setup as setup_export};
use crate::secret_spec::SecretSpec;
use crate::setup::Setup;
use machine_code::BuiltIn;
use model::Kind;
use schema::Schema;
use serde_json::Value;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use wasmtime::component::InstancePre;

/// The work of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It polls targets.
    Poller,
    /// It sends notifications.
    Notifier {
        /// Whether the receiver groups alerts, and must get each of them.
        needs_every_alert: bool,
    },
}

/// The checked descriptor of a plugin.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// The work of the plugin.
    pub role: Role,
    /// The kind that the plugin serves, of targets or of channels.
    pub kind: Kind,
    /// The display name.
    pub title: String,
    /// The plugin's own version, a semantic version.
    pub version: String,
    /// A description in one sentence.
    pub summary: String,
    /// The address of its web page.
    pub homepage: Option<String>,
    /// Its licence as an SPDX expression.
    pub license: Option<String>,
    /// The schemes of the URLs that it accepts. Empty if it accepts all that this host knows.
    pub schemes: Vec<String>,
    /// The JSON Schema of the settings.
    pub settings_schema: Value,
    /// The version of the shape of the settings, from 1.
    pub settings_version: u32,
    /// The secrets that an operator can configure.
    pub secrets: Vec<SecretSpec>,
    /// The interval of a target without a configured interval; zero for a notifier.
    pub default_interval: Duration,
    /// The timeout of a target or channel without a configured timeout.
    pub default_timeout: Duration,
    /// How a service of this kind becomes a target. `None` if the plugin does not describe it.
    pub setup: Option<Setup>,
}

/// A loaded plugin. Cheap to clone.
#[derive(Clone)]
pub struct Plugin(Arc<Parts>);

/// A plugin ready for instances, and the places of its exports.
pub(crate) struct Exports {
    pub pre: InstancePre<State>,
    pub definition: definition::GuestIndices,
    pub role: RoleExports,
    /// `None` if the plugin does not describe how a service becomes a target.
    pub setup: Option<setup_export::GuestIndices>,
    /// `None` if the plugin does not end its sessions.
    pub session: Option<session::GuestIndices>,
}

/// The exports of a plugin's role.
pub(crate) enum RoleExports {
    Poller(poller::GuestIndices),
    Notifier(notifier::GuestIndices),
}

/// The parts of a [`Plugin`].
pub(crate) struct Parts {
    /// `None` while a built-in plugin rests.
    pub exports: RwLock<Option<Arc<Exports>>>,
    /// The machine code in the program; `None` for a plugin of a file.
    pub built_in: Option<BuiltIn>,
    pub descriptor: Descriptor,
    pub schema: Schema,
    /// Whether the plugin ends its sessions.
    pub has_session: bool,
    /// The SHA-256 of the file.
    pub digest: [u8; 32],
    /// The size of the file in bytes. `None` if the file no longer exists.
    pub size: Option<usize>,
    pub imports: Vec<String>,
    /// `None` if the plugin was compiled earlier.
    pub compile_time: Option<Duration>,
}

impl From<Parts> for Plugin {
    fn from(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plugin({} {})", self.0.descriptor.kind, self.0.descriptor.version)
    }
}

impl Plugin {
    /// Returns the checked descriptor.
    pub fn descriptor(&self) -> &Descriptor {
        &self.0.descriptor
    }

    /// Returns the SHA-256 of the file.
    pub fn digest(&self) -> [u8; 32] {
        self.0.digest
    }

    /// Returns the size of the file in bytes. `None` if the file no longer exists.
    pub fn size(&self) -> Option<usize> {
        self.0.size
    }

    /// Returns the names of the imported interfaces, in the order of the component.
    pub fn imports(&self) -> &[String] {
        &self.0.imports
    }

    /// Returns the duration of compiling. `None` if the plugin was compiled earlier.
    pub fn compile_time(&self) -> Option<Duration> {
        self.0.compile_time
    }

    /// Returns the version of the contract that the plugin was built for.
    pub fn contract_version(&self) -> &'static str {
        CONTRACT_VERSIONS[0]
    }

    /// Returns the addresses at which the machine code and its data are mapped, as long as the plugin is loaded and
    /// does not rest.
    pub fn image(&self) -> Range<usize> {
        let Some(exports) = self.exports() else { return 0..0 };
        let image = exports.pre.component().image_range();
        image.start.addr()..image.end.addr()
    }

    pub(crate) fn has_session(&self) -> bool {
        self.0.has_session
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.0.schema
    }

    /// Frees the machine code of a built-in plugin, and the validator of its settings, until they are used.
    pub fn rest(&self) {
        if self.0.built_in.is_some() {
            self.0.schema.rest();
            *self.0.exports.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Returns the exports; `None` while the plugin rests.
    pub(crate) fn exports(&self) -> Option<Arc<Exports>> {
        self.0.exports.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends a rest. Returns the exports, which are other ones if another call was faster.
    pub(crate) fn wake(&self, exports: Exports) -> Arc<Exports> {
        let mut held = self.0.exports.write().unwrap_or_else(PoisonError::into_inner);
        held.get_or_insert_with(|| Arc::new(exports)).clone()
    }

    pub(crate) fn built_in(&self) -> Option<BuiltIn> {
        self.0.built_in
    }
}
