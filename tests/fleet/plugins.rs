//! Plugins that devices take from their operator.

use crate::support::{Host, Server, always, folder, ok, until};
use crate::{Fleet, HEALTHY};
use serde_json::{Value, json};
use std::fs;
use tests::wat;

/// A plugin of more than one part: its last section has no meaning.
fn large(version: &str) -> Vec<u8> {
    const UNUSED: usize = 300_000;
    let mut file = wat::plugin("written", version, &format!("(func $poll (type $poll) i32.const {})", wat::DEPENDENCY));
    // A custom section: its number, its size as LEB128, the length of its name, which is empty, and its content.
    let size = UNUSED + 1;
    let leb = [size & 0x7f | 0x80, size >> 7 & 0x7f | 0x80, size >> 14].map(|byte| u8::try_from(byte).unwrap());
    file.extend([&[0][..], &leb, &[0], &[7; UNUSED]].concat());
    file
}

/// The version and the file of the plugin that serves the kind on a host.
fn served(host: &Host) -> Option<(String, String)> {
    let plugins = host.get("/api/v1/plugins");
    let found = plugins["plugins"].as_array().unwrap().iter().find(|plugin| plugin["kind"] == "written")?.clone();
    Some((found["version"].as_str()?.to_owned(), found["source"].as_str()?.to_owned()))
}

#[test]
fn a_device_takes_the_plugins_that_it_lacks_if_its_owner_permits_that() {
    let (_keep, place) = folder();
    let server = Server::start(vec![("/", always(ok(HEALTHY)))]);
    let mut fleet = Fleet::start_with_accounts(&place, &["own", "takes", "takes-none"]);
    let files = |host: &str| place.join(host).join("data/plugins");
    fs::write(files("operator").join("written.wasm"), large("1.0.0")).unwrap();
    fs::create_dir_all(files("own")).unwrap();
    fs::write(files("own").join("mine.wasm"), large("0.5.0")).unwrap();
    let own = fleet.agent("own", "", "plugins = true\n");
    let takes = fleet.agent("takes", "", "plugins = true\n");
    let _takes_none = fleet.agent("takes-none", "", "");
    until("it serves its own", || served(&own), Option::is_some);
    until("the operator serves it", || served(fleet.operator()), Option::is_some);
    let target = json!({ "id": "nas", "kind": "written", "url": server.url("/"), "interval": "5s" });
    fleet.deploy("nas", &json!({ "targets": [target] }));
    let view = fleet.counts("nas", [2, 1, 0, 0]);
    let error = &view["lastError"];
    assert_eq!(error["device"], "takes-none", "{view}");
    assert!(error["error"].as_str().unwrap().contains("plugins = true in [fleet]"), "{view}");
    let failed = |change: &&Value| change["phase"] == "failed";
    let recent: Vec<_> = view["recent"].as_array().unwrap().iter().filter(failed).collect();
    assert_eq!(recent.len(), 1, "the others waited for the plugin: {view}");
    let is = |version: &str, file: &str| {
        let (version, file) = (version.to_owned(), file.to_owned());
        move |found: &Option<(String, String)>| found.as_ref().is_some_and(|(v, f)| *v == version && f.ends_with(&file))
    };
    assert!(is("1.0.0", "fleet-written.wasm")(&served(&takes)), "{:?}", served(&takes));
    assert!(is("0.5.0", "mine.wasm")(&served(&own)), "{:?}", served(&own));
    let (code, out, _) = fleet.operator().command(&fleet.folder("operator"), &["fleet", "status"]);
    assert!(code == 1 && out.contains("fetch the plugin for kind written"), "{out}");
    assert!(out.contains(": takes-none: nas: no plugin serves kind written on this host"), "{out}");

    // A new version at the operator goes to the devices that took the earlier one.
    fs::write(files("operator").join("written.wasm"), large("2.0.0")).unwrap();
    until("the new version serves", || served(&takes), is("2.0.0", "fleet-written.wasm"));
    assert!(is("0.5.0", "mine.wasm")(&served(&own)), "{:?}", served(&own));

    // A broker that lost everything has it again, for a device that lost its file.
    fleet.broker.down();
    fleet.broker.wipe();
    fs::remove_file(files("takes").join("fleet-written.wasm")).unwrap();
    until("the file is gone", || served(&takes), Option::is_none);
    fleet.broker.up();
    until("it serves again", || served(&takes), is("2.0.0", "fleet-written.wasm"));
    fleet.counts("nas", [2, 1, 0, 0]);

    // A plugin that the operator removes is offered no more, and stays where it is.
    fs::remove_file(files("operator").join("written.wasm")).unwrap();
    let offered = || fleet.operator().get("/api/v1/fleet")["operator"]["plugins"].clone();
    until("nothing is offered", offered, |offered| *offered == json!([]));
    assert!(is("2.0.0", "fleet-written.wasm")(&served(&takes)), "{:?}", served(&takes));
}
