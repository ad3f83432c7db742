//! Where configuration and data lie.

use std::path::{Path, PathBuf};

/// What the operator said on the command line.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--data-dir`.
    pub data_dir: Option<PathBuf>,
}

/// The configuration file, where there is one: as named, or the first of the usual places that exists.
///
/// What was looked at is given back when there is none.
pub fn find(places: &Places, environment: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, Vec<PathBuf>> {
    if let Some(named) = &places.config {
        return Ok(named.clone());
    }
    let own = home(environment, "XDG_CONFIG_HOME", ".config").map(|folder| folder.join("polliwog/polliwog.toml"));
    let usual = [Some(PathBuf::from("polliwog.toml")), own, Some(PathBuf::from("/etc/polliwog/polliwog.toml"))];
    let usual: Vec<PathBuf> = usual.into_iter().flatten().collect();
    usual.iter().find(|path| path.is_file()).cloned().ok_or(usual)
}

/// Where data lies; the demo's has a folder of its own.
pub fn data_dir(places: &Places, demo: bool, environment: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    if let Some(named) = &places.data_dir {
        return named.clone();
    }
    let usual = home(environment, "XDG_DATA_HOME", ".local/share").unwrap_or_else(|| PathBuf::from("."));
    usual.join(if demo { "polliwog-demo" } else { "polliwog" })
}

fn home(environment: &dyn Fn(&str) -> Option<String>, variable: &str, folder: &str) -> Option<PathBuf> {
    let set = environment(variable).filter(|path| Path::new(path).is_absolute()).map(PathBuf::from);
    set.or_else(|| environment("HOME").map(|home| Path::new(&home).join(folder)))
}
