//! The places of the configuration file and the data directory.

use std::path::{Path, PathBuf};

/// The name of the configuration's file.
pub const FILE: &str = "polliwog.toml";

/// The places given on the command line.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--data-dir`.
    pub data_dir: Option<PathBuf>,
}

/// Finds the configuration file: the one on the command line, or the first default place that exists.
///
/// # Errors
/// The default places, if none of them exists.
pub fn find(places: &Places, environment: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, Vec<PathBuf>> {
    if let Some(named) = &places.config {
        return Ok(named.clone());
    }
    let own = home(environment, "XDG_CONFIG_HOME", ".config").map(|folder| folder.join("polliwog/polliwog.toml"));
    let defaults = [Some(PathBuf::from(FILE)), own, Some(PathBuf::from("/etc/polliwog/polliwog.toml"))];
    let defaults: Vec<PathBuf> = defaults.into_iter().flatten().collect();
    defaults.iter().find(|path| path.is_file()).cloned().ok_or(defaults)
}

/// Returns the data directory; the demo has a separate one.
pub fn data_dir(places: &Places, demo: bool, environment: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    if let Some(named) = &places.data_dir {
        return named.clone();
    }
    let parent = home(environment, "XDG_DATA_HOME", ".local/share").unwrap_or_else(|| PathBuf::from("."));
    parent.join(if demo { "polliwog-demo" } else { "polliwog" })
}

fn home(environment: &dyn Fn(&str) -> Option<String>, variable: &str, folder: &str) -> Option<PathBuf> {
    let set = environment(variable).filter(|path| Path::new(path).is_absolute()).map(PathBuf::from);
    set.or_else(|| environment("HOME").map(|home| Path::new(&home).join(folder)))
}
