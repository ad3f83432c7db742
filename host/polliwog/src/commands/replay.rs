//! `replay`: serves recorded bodies.

use crate::output::{complain, counted};
use std::path::Path;

/// Serves recorded bodies until the process ends.
pub(crate) async fn replay(dir: &Path, port: u16) -> anyhow::Result<u8> {
    let files = demo::Replayed::read(dir).map_err(anyhow::Error::msg)?;
    let count = counted(files.names().count(), "file");
    let ready = |address| {
        complain(format_args!("serving {count} at http://{address}/, each under its name; stop with Ctrl-C"));
    };
    demo::replay(files, port, engine::seconds, ready).await?;
    Ok(0)
}
