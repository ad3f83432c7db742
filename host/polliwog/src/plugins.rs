//! The sandbox and the catalog, configured for commands.

use crate::cli::COMPILE_PLUGIN;
use crate::output::complain;
use anyhow::anyhow;
use catalog::{Location, PluginWatcher, Served, Trust, Uncompiled};
use config::Config;
use egress::Egress;
use engine::random_bytes;
use model::Kind;
use sandbox::{Backtrace, Compiler, DurableFolder, Sandbox};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

/// The compiler of plugins, which runs this program as a child process.
pub(crate) fn compiler(data_dir: &Path) -> anyhow::Result<Compiler> {
    Ok(catalog::compiler(&[COMPILE_PLUGIN], data_dir, random_bytes::<32>)?)
}

/// The folder for captured secrets that survive a restart. Without the key of this installation, a warning is logged,
/// and they are kept in memory only.
pub(crate) fn durable(data_dir: &Path) -> Option<DurableFolder> {
    match catalog::installation_key(data_dir, random_bytes::<32>) {
        Ok(key) => Some(DurableFolder { path: data_dir.join("captured"), key }),
        Err(error) => {
            tracing::warn!(
                "log-ins of plugins cannot be kept in {} ({error}): plugins log in again at every start",
                data_dir.display()
            );
            None
        }
    }
}

/// A sandbox for commands that load every plugin.
pub(crate) fn sandbox(config: &Config) -> anyhow::Result<Arc<Sandbox>> {
    let egress = Egress::new(egress::Config::default());
    let settings = sandbox::Config { zone: config.time_zone.clone(), ..sandbox::Config::default() };
    Ok(Arc::new(Sandbox::new(settings, compiler(&config.data_dir)?, &egress)?))
}

/// A sandbox for commands that run one plugin, one poll at a time.
pub(crate) fn small_sandbox(config: &Config, backtrace: Backtrace) -> anyhow::Result<Sandbox> {
    let settings = sandbox::Config {
        instance_slots: 1,
        lanes: NonZeroUsize::MIN,
        backtrace,
        zone: config.time_zone.clone(),
        ..sandbox::Config::default()
    };
    Ok(Sandbox::new(settings, compiler(&config.data_dir)?.at_once(), &Egress::new(egress::Config::default()))?)
}

/// Loads the plugins of a configuration.
pub(crate) async fn load(config: &Config, sandbox: Arc<Sandbox>, uncompiled: Uncompiled) -> PluginWatcher {
    let location = Location { plugins: &config.plugin_dir, data: &config.data_dir, built_in: builtin_code::ALL };
    PluginWatcher::start(sandbox, location, trust(config), uncompiled).await
}

/// Returns the plugin that serves a kind, for a command that runs one.
pub(crate) async fn serving(config: &Config, sandbox: &Arc<Sandbox>, kind: &Kind) -> anyhow::Result<Arc<Served>> {
    let plugins = load(config, sandbox.clone(), Uncompiled::Compile(compiling)).await.set().clone();
    plugins.get(kind).cloned().ok_or_else(|| {
        let kinds: Vec<&str> = plugins.pollers().map(|served| served.plugin.descriptor().kind.as_str()).collect();
        let refused = plugins.refused().iter().take(3);
        let refused: String = refused.map(|file| format!("; {} is refused: {}", file.file, file.reason)).collect();
        let folder = config.plugin_dir.display();
        anyhow!("no plugin serves kind {kind}: there are {}; others are read from {folder}{refused}", kinds.join(", "))
    })
}

/// The rules for files that may take over kinds with targets.
pub(crate) fn trust(config: &Config) -> Trust {
    let in_use = config.targets.iter().chain(&config.channels).map(|target| target.kind.clone());
    Trust::new(&config.trusted_plugins, in_use, &config.data_dir)
}

/// Announces on stderr that a plugin must be compiled first, which takes a while.
pub(crate) fn say_compiling(sandbox: &Sandbox, content: &[u8], file: &Path) {
    if !sandbox.is_judged(content) {
        compiling(file);
    }
}

/// Announces on stderr that a plugin is compiled.
pub(crate) fn compiling(file: &Path) {
    complain(format_args!(
        "compiling {}: this takes seconds, up to two minutes for JavaScript and Python",
        file.display()
    ));
}
