//! Versions of a plugin whose settings changed, and the configuration for them, in either order.

use crate::plugins::{plugin_folder, refusal, target, until_polled, until_refused, until_version, version};
use crate::support::{Host, Server, always, folder, ok, output, until};
use serde_json::json;
use std::fs;
use std::path::Path;
use tests::wat;

/// Builds a plugin whose targets may have one setting, a text.
fn with_setting(kind: &str, version: &str, setting: &str) -> Vec<u8> {
    with_version(kind, version, setting, 1, "{}")
}

/// Builds a plugin whose targets may have one setting, a text. Its settings have a version; earlier ones are converted
/// to `migrated`.
fn with_version(kind: &str, version: &str, setting: &str, settings_version: u32, migrated: &str) -> Vec<u8> {
    /// The addresses of the schema and of the converted settings.
    const SCHEMA: u32 = 16_384;
    const MIGRATED: u32 = 20_480;
    let schema = json!({
        "type": "object", "properties": { setting: { "type": "string" } }, "additionalProperties": false
    });
    let schema = schema.to_string();
    let bytes = |number: u32| number.to_le_bytes().map(|byte| format!("\\{byte:02x}")).concat();
    let (address, length) = (bytes(SCHEMA), bytes(u32::try_from(schema.len()).unwrap()));
    let text = format!(
        "(func $poll (type $poll) i32.const {})
        (data (i32.const {}) \"{address}{length}\")
        (data (i32.const {SCHEMA}) \"{}\")
        (data (i32.const {}) \"{}\")
        (data (i32.const {}) \"{}{}\")
        (data (i32.const {MIGRATED}) \"{}\")",
        wat::DEPENDENCY,
        wat::SCHEMA,
        schema.replace('"', "\\22"),
        wat::SETTINGS_VERSION,
        bytes(settings_version),
        wat::MIGRATED + 4,
        bytes(MIGRATED),
        bytes(u32::try_from(migrated.len()).unwrap()),
        migrated.replace('"', "\\22"),
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

#[test]
fn settings_of_an_earlier_version_are_converted_and_their_version_is_remembered() {
    let ((_keep, folder), server) = (folder(), Server::start(vec![("/", always(ok("")))]));
    let plugins = plugin_folder(&folder);
    let url = server.url("/");
    let config = |settings: &str| format!("{}{settings}", target("one", "one", &url));
    let place = |bytes: Vec<u8>| fs::write(plugins.join("one.wasm"), bytes).unwrap();
    place(with_setting("one", "1.0.0", "ref"));
    let first = config("[target.settings]\nref = \"main\"\n");
    let host = Host::start(&folder, &first);
    until_version(&host, "one", Some("1.0.0"));
    until_polled(&host, "one");
    // The second version renames the setting.
    place(with_version("one", "2.0.0", "branch", 2, r#"{"branch":"main"}"#));
    until_version(&host, "one", Some("2.0.0"));
    let before = host.target("one")["lastPolled"].clone();
    until("it is polled with converted settings", || host.target("one"), |target| target["lastPolled"] != before);
    assert_eq!(problems(&host), Vec::<String>::new());
    let converted = "are of version 1, and are converted to version 2 of kind one";
    until("the log says it", || host.log.lock().unwrap().clone(), |log| log.contains(converted));
    let (code, said, _) = output(&folder, &["check", "--data-dir", "data"]);
    assert!(code == 0 && said.contains(converted) && said.contains("[target.settings]\nbranch = \"main\""), "{said}");
    // The operator writes the new settings: they are of version 2, and that is remembered.
    Host::configure(&folder, &config("[target.settings]\nbranch = \"main\"\n"));
    let check = || output(&folder, &["check", "--data-dir", "data"]).1;
    until("nothing is converted", check, |said| !said.contains("converted"));
    until(
        "the version is known",
        || fs::read_to_string(folder.join("data/settings-versions.json")).unwrap_or_default(),
        |file| file.contains(": 2"),
    );
    assert_eq!(host.terminate(), 0);
    // A third version comes while no host runs. Its conversion of version 1 would be another one.
    place(with_version("one", "3.0.0", "head", 3, r#"{"head":"main"}"#));
    let host = Host::start(&folder, &config("[target.settings]\nbranch = \"main\"\n"));
    let converted = "are of version 2, and are converted to version 3 of kind one";
    until("the log says it", || host.log.lock().unwrap().clone(), |log| log.contains(converted));
    assert_eq!(version(&host, "one").as_deref(), Some("3.0.0"));
    assert_eq!(host.terminate(), 0);
    // Nonsense, a later version than the plugin's, and a written version.
    place(with_version("one", "4.0.0", "head", 3, "[]"));
    let said = |settings: &str| {
        fs::write(folder.join("polliwog.toml"), config(settings)).unwrap();
        output(&folder, &["check", "--data-dir", "data"]).1
    };
    let nonsense = said("[target.settings]\nbranch = \"main\"\n");
    assert!(nonsense.contains("unknown key \"branch\"") && nonsense.contains("returned no JSON object"), "{nonsense}");
    let later = said("settings_version = 4\n[target.settings]\nhead = \"main\"\n");
    assert!(later.contains("they are of version 4, and this version of the plugin knows version 3"), "{later}");
    let written = said("settings_version = 3\n[target.settings]\nhead = \"main\"\n");
    assert!(written.contains("all is well"), "{written}");
    let zero = said("settings_version = 0\n");
    assert!(zero.contains("settings_version: use the number of a version, from 1"), "{zero}");
}

/// Settings that are wrong in the present version and after their conversion are not said to be of an earlier one.
#[test]
fn nonsense_is_one_sentence_unless_the_plugin_refuses_to_convert_it() {
    let (_keep, folder) = folder();
    let said = |migrated: &str| {
        fs::write(folder.join("one.wasm"), with_version("one", "2.0.0", "branch", 2, migrated)).unwrap();
        let arguments = ["poll", "--plugin", "one.wasm", "--url", "http://127.0.0.1:9", "--settings", r#"{"maks":3}"#];
        let (code, _, why) = output(&folder, &arguments);
        assert_eq!(code, 64, "{why}");
        why.lines().filter(|line| line.contains("settings:")).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let unknown = "polliwog: settings: unknown key \"maks\"; use one of: branch";
    assert_eq!(said(r#"{"maks":3}"#), [unknown]);
    let refused = "polliwog: settings: their conversion from version 1 failed: the plugin returned no JSON object";
    assert_eq!(said("[]"), [unknown, refused]);
}
