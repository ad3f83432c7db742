//! Versions of a plugin whose settings changed, and the configuration for them, in either order.

use crate::plugins::{plugin_folder, refusal, target, until_polled, until_refused, until_version, version};
use crate::support::{Host, Server, always, folder, ok, output, until};
use serde_json::json;
use std::fs;
use std::path::Path;
use tests::wat;

/// Builds a plugin whose targets may have one setting, a text.
fn with_setting(kind: &str, version: &str, setting: &str) -> Vec<u8> {
    /// The address of the schema.
    const SCHEMA: u32 = 16_384;
    let schema = json!({
        "type": "object", "properties": { setting: { "type": "string" } }, "additionalProperties": false
    });
    let schema = schema.to_string();
    let bytes = |number: u32| number.to_le_bytes().map(|byte| format!("\\{byte:02x}")).concat();
    let (address, length) = (bytes(SCHEMA), bytes(u32::try_from(schema.len()).unwrap()));
    let text = format!(
        "(func $poll (type $poll) i32.const {})
        (data (i32.const {}) \"{address}{length}\")
        (data (i32.const {SCHEMA}) \"{}\")",
        wat::DEPENDENCY,
        wat::SCHEMA,
        schema.replace('"', "\\22")
    );
    wat::plugin(kind, version, &text)
}

/// The problems that keep the file of the configuration from being active.
fn problems(host: &Host) -> Vec<String> {
    let problems = host.get("/api/v1/settings")["problems"].clone();
    problems.as_array().unwrap().iter().map(|problem| problem.as_str().unwrap().to_owned()).collect()
}

/// Starts a host with two kinds of version 1.0.0, whose targets have the setting `ref`, and one target of each.
fn host_with_two_kinds(folder: &Path, server: &Server) -> (Host, impl Fn(&str) -> String) {
    let plugins = plugin_folder(folder);
    let url = server.url("/");
    let config = move |settings: &str| {
        let of = |kind: &str| format!("{}[target.settings]\n{settings}\n", target(kind, kind, &url));
        format!("{}{}", of("one"), of("two"))
    };
    for kind in ["one", "two"] {
        fs::write(plugins.join(format!("{kind}.wasm")), with_setting(kind, "1.0.0", "ref")).unwrap();
    }
    let host = Host::start(folder, &config("ref = \"main\""));
    for kind in ["one", "two"] {
        until_version(&host, kind, Some("1.0.0"));
        until_polled(&host, kind);
    }
    (host, config)
}

#[test]
fn a_version_with_renamed_settings_can_come_before_the_configuration() {
    let ((_keep, folder), server) = (folder(), Server::start(vec![("/", always(ok("")))]));
    let (host, config) = host_with_two_kinds(&folder, &server);
    for kind in ["one", "two"] {
        let file = format!("{kind}.wasm");
        fs::write(folder.join("data/plugins").join(&file), with_setting(kind, "2.0.0", "branch")).unwrap();
        until_refused(&host, &file, "unknown key \"ref\"");
        assert_eq!(version(&host, kind).as_deref(), Some("1.0.0"));
    }
    // A problem that no plugin causes keeps all as it is, and is the only one.
    Host::configure(&folder, &config("branch = \"main\"\nnonsense = 1"));
    until(
        "the problems",
        || problems(&host),
        |found| found.len() == 2 && found.iter().all(|why| why.contains("nonsense")),
    );
    assert_eq!(version(&host, "one").as_deref(), Some("1.0.0"));
    let before = host.target("one")["lastPolled"].clone();
    Host::configure(&folder, &config("branch = \"main\""));
    for kind in ["one", "two"] {
        until_version(&host, kind, Some("2.0.0"));
        until("it is not refused", || refusal(&host, &format!("{kind}.wasm")), Option::is_none);
    }
    assert_eq!(problems(&host), Vec::<String>::new());
    until("it is polled by the new version", || host.target("one"), |target| target["lastPolled"] != before);
    assert_eq!(output(&folder, &["check", "--data-dir", "data"]).0, 0);
}

#[test]
fn a_version_with_renamed_settings_can_come_after_the_configuration() {
    let ((_keep, folder), server) = (folder(), Server::start(vec![("/", always(ok("")))]));
    let (host, config) = host_with_two_kinds(&folder, &server);
    Host::configure(&folder, &config("branch = \"main\""));
    until("the problems", || problems(&host), |found| found.len() == 2 && found[0].contains("unknown key \"branch\""));
    let plugins = folder.join("data/plugins");
    fs::write(plugins.join("one.wasm"), with_setting("one", "2.0.0", "branch")).unwrap();
    // The other kind is in the way of both.
    until_refused(&host, "one.wasm", "unknown key \"branch\"");
    assert_eq!(version(&host, "one").as_deref(), Some("1.0.0"));
    fs::write(plugins.join("two.wasm"), with_setting("two", "2.0.0", "branch")).unwrap();
    for kind in ["one", "two"] {
        until_version(&host, kind, Some("2.0.0"));
        until("it is not refused", || refusal(&host, &format!("{kind}.wasm")), Option::is_none);
    }
    until("no problem remains", || problems(&host), Vec::is_empty);
    // A restart finds the same.
    assert_eq!(host.terminate(), 0);
    let host = Host::start(&folder, &config("branch = \"main\""));
    assert_eq!((version(&host, "one").as_deref(), problems(&host).len()), (Some("2.0.0"), 0));
}
