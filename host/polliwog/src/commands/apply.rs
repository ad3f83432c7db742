//! `apply`: shows what another configuration would change, and puts it in the place of the present one.

use super::check::examined;
use crate::cli::{ApplyArguments, Common};
use crate::configuration::{document, parse};
use crate::output::{complain, print, print_json};
use anyhow::{Context, anyhow, bail};
use config::{Document, FILE, environment, find};
use engine::changes;
use serde_json::json;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

/// Checks the configuration in a directory and prints what it would change. Without `--dry-run`, replaces the present
/// file by it.
pub(crate) async fn apply(arguments: &ApplyArguments) -> anyhow::Result<u8> {
    let ApplyArguments { directory, dry_run, common, json } = arguments;
    let new = directory.join(FILE);
    if !new.is_file() {
        bail!("{} does not exist: name a directory with a {FILE}", new.display());
    }
    let there = Common { config: Some(new.clone()), ..common.clone() };
    let found = examined(&there).await?;
    if !found.problems.is_empty() {
        found.problems.iter().for_each(complain);
        bail!("the configuration in {} has problems: nothing was changed", directory.display());
    }
    let places = common.places();
    let present = find(&places, &environment).map_err(|tried| {
        let tried: Vec<String> = tried.iter().map(|path| path.display().to_string()).collect();
        anyhow!("there is no configuration yet ({}): copy {} there", tried.join(", "), new.display())
    })?;
    let before = parse(&document(&places, false)?, &places).map_err(|problems| {
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        anyhow!("the present configuration cannot be compared: {first}")
    })?;
    let read = Document::read(new.clone()).map_err(|why| anyhow!(why))?;
    let after = parse(&read, &there.places()).map_err(|problems| anyhow!("{}", problems[0]))?;
    let lines = changes(before.config(), after.config());
    if !dry_run && !lines.is_empty() {
        replace(&present, &new)?;
    }
    let applied = !dry_run && !lines.is_empty();
    if *json {
        print_json(&json!({ "file": present, "changes": lines, "applied": applied }))?;
        return Ok(0);
    }
    lines.iter().try_for_each(|line| print(line))?;
    print(&match (lines.is_empty(), dry_run) {
        (true, _) => format!("nothing would change in {}", present.display()),
        (false, true) => format!("{} was not changed: this was a dry run", present.display()),
        (false, false) => {
            format!(
                "{} was replaced: a running host takes it over, and `polliwog status` shows problems",
                present.display()
            )
        }
    })?;
    Ok(0)
}

/// Replaces a file at once: a reader sees the old or the new content. Keeps its owner and permissions.
fn replace(present: &Path, new: &Path) -> anyhow::Result<()> {
    let content = std::fs::read(new).with_context(|| format!("cannot read {}", new.display()))?;
    // A link keeps leading to the same place.
    let present = present.canonicalize().with_context(|| format!("cannot find {}", present.display()))?;
    let folder = present.parent().ok_or_else(|| anyhow!("{} is in no directory", present.display()))?;
    let metadata = std::fs::metadata(&present)?;
    let beside = folder.join(format!(".{FILE}.{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create_new(&beside)?;
        file.set_permissions(std::fs::Permissions::from_mode(metadata.mode() & 0o777))?;
        // Only root may give a file away, and for others the owner is the same.
        let _ = fchown(&file, Some(metadata.uid()), Some(metadata.gid()));
        file.write_all(&content)?;
        file.sync_all()?;
        std::fs::rename(&beside, &present)
    };
    write().map_err(|error| {
        // A part of the new content is of no use.
        let _ = std::fs::remove_file(&beside);
        anyhow!("{} cannot be replaced ({error}): check the permissions of its directory", present.display())
    })
}
