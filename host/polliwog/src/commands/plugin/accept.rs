//! `plugin accept`: allows a plugin file to take over a kind that has targets.

use crate::cli::Common;
use crate::configuration::read;
use crate::output::print;
use crate::plugins::trust;
use anyhow::{anyhow, bail};
use sha2::{Digest, Sha256};
use std::path::Path;

/// Accepts a file's present content.
pub(crate) fn accept(file: &Path, common: &Common) -> anyhow::Result<u8> {
    let config = read(&common.places())?.map_err(|problems| anyhow!("{}", problems[0]))?;
    let path = if file.components().count() == 1 { config.plugin_dir.join(file) } else { file.to_owned() };
    let content = match catalog::read(&path) {
        Ok(content) => content,
        Err(why) => bail!("{}: {why}", path.display()),
    };
    let digest = model::hex(&Sha256::digest(&content));
    trust(&config).accept(&digest)?;
    print(&format!("{} is accepted (SHA-256 {digest}); a running host loads it within seconds", path.display()))?;
    Ok(0)
}
