//! Compiles the built-in plugins and lists them for `src/lib.rs`.

use plugin_build::{Components, build, write};
use std::fmt::Write;
use std::path::PathBuf;

const PLUGINS: [&str; 17] = [
    "plugin-alertmanager",
    "plugin-discord",
    "plugin-gotify",
    "plugin-http",
    "plugin-mapping",
    "plugin-matrix",
    "plugin-ntfy",
    "plugin-pagerduty",
    "plugin-pbs",
    "plugin-pmg",
    "plugin-proactive-deps",
    "plugin-pushover",
    "plugin-pve",
    "plugin-slack",
    "plugin-teams",
    "plugin-telegram",
    "plugin-webhook",
];
/// The source folders of the plugins and of their shared code.
const SOURCES: [&str; 18] = [
    "plugins/alertmanager",
    "plugins/discord",
    "plugins/gotify",
    "plugins/http",
    "plugins/mapping",
    "plugins/matrix",
    "plugins/ntfy",
    "plugins/pagerduty",
    "plugins/pbs",
    "plugins/pmg",
    "plugins/proactive-deps",
    "plugins/proxmox",
    "plugins/pushover",
    "plugins/pve",
    "plugins/slack",
    "plugins/teams",
    "plugins/telegram",
    "plugins/webhook",
];

fn main() {
    let mut list = String::from("&[\n");
    for (name, file) in build("../..", &Components::Packages(&PLUGINS), &SOURCES) {
        let kind = name.trim_start_matches("plugin-");
        writeln!(
            list,
            "    Builtin {{ kind: {kind:?}, component: {{ static BYTES: [u8; include_bytes!({file:?}).len()] = \
             *include_bytes!({file:?}); &BYTES }} }},"
        )
        .expect("writing to a string never fails");
    }
    list.push_str("]\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    write(&out.join("builtin.rs"), list);
}
