//! What belongs to Proxmox products on the command line: `setup`, `replay`, and `poll` as the test button.

use crate::command_line::tls_server;
use crate::support::{folder, output, poll_json, polliwog};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

const TOKEN: &str = "monitor@pve!polliwog=11111111-2222-3333-4444-555555555555";

#[test]
fn setup_shows_the_certificate_and_prints_a_target_that_is_one() {
    let (_keep, folder) = folder();
    let url = format!("https://localhost:{}", tls_server());
    let (code, stdout, stderr) = output(&folder, &["setup", "pve", &url, "--json"]);
    assert_eq!(code, 0, "{stderr}");
    let found: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(found["certificate"]["trusted"], false);
    let fingerprint = found["certificate"]["fingerprint"].as_str().unwrap();
    assert_eq!(fingerprint.len(), 95, "64 digits and 31 colons: {fingerprint}");
    let commands = found["commands"].to_string();
    assert!(commands.contains("-token 'polliwog@pve!monitor' -role PVEAuditor"), "{commands}");

    fs::write(folder.join("polliwog.toml"), found["toml"].as_str().unwrap()).unwrap();
    let check = polliwog(&folder, &["check"]).env("PVE_TOKEN", TOKEN).output().unwrap();
    assert!(
        check.status.success(),
        "{}{}",
        String::from_utf8_lossy(&check.stdout),
        String::from_utf8_lossy(&check.stderr)
    );

    let (_, text, _) = output(&folder, &["setup", "pve", &url]);
    assert!(text.contains(fingerprint) && text.contains("pvenode cert info") && text.contains("[[target]]"), "{text}");

    // A token is sent to nobody whose certificate is not confirmed.
    let asked = polliwog(&folder, &["setup", "pve", &url, "--secret", "token=env:T"]).env("T", TOKEN).output().unwrap();
    let stderr = String::from_utf8(asked.stderr).unwrap();
    assert!(asked.status.code() == Some(1) && stderr.contains("so that the token is not sent"), "{stderr}");

    for (arguments, code, says) in [
        (["setup", "pbs", "http://127.0.0.1:9"], 1, "nothing listens at 127.0.0.1:9"),
        (["setup", "pmg", "ftp://mail.example"], 64, "only http and https are spoken"),
    ] {
        let (found, _, stderr) = output(&folder, &arguments);
        assert!(found == code && stderr.contains(says), "{arguments:?}: {found} {stderr}");
    }
}

/// A replay server; ended when dropped.
struct Replay(Child);

impl Drop for Replay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn recorded_bodies_and_recordings_are_served_and_polled() {
    let (_keep, folder) = folder();
    let bodies = folder.join("bodies/pve");
    fs::create_dir_all(&bodies).unwrap();
    let resources = r#"{"data":[{"type":"node","node":"solo","status":"online","maxcpu":4},
        {"type":"qemu","vmid":"7","node":"solo","status":"io-error","name":"seven"}]}"#;
    fs::write(bodies.join("cluster_resources__mine.json"), resources).unwrap();
    fs::write(folder.join("token"), TOKEN).unwrap();
    let serve = || {
        let mut child = polliwog(&folder, &["replay", "bodies", "--port", "0"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let base =
            line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().trim_end_matches("/,").to_owned();
        (Replay(child), base)
    };
    let poll = |url: &str, more: &[&str]| {
        let arguments = [&["--kind", "pve", "--url", url, "--secret", "token=file:token"], more].concat();
        poll_json(&folder, &arguments)
    };
    let status = |found: &Value, name: &str| {
        let all = found["dependencies"].as_array().unwrap();
        all.iter().find(|of| of["name"] == name).map(|of| of["status"].as_str().unwrap().to_owned())
    };
    let (server, base) = serve();
    let record = ["--record", "bodies/recorded.json"];
    let (code, found) = poll(&format!("{base}/pve/cluster_resources__mine"), &record);
    assert_eq!((code, status(&found, "guest/7").as_deref()), (2, Some("critical")), "{found}");
    assert_eq!(status(&found, "cluster/quorum").as_deref(), Some("ok"), "the rest is the simulated estate's");
    drop(server);

    // What was recorded is served, and is the same again.
    let (_server, base) = serve();
    let (_, again) = poll(&format!("{base}/recorded"), &[]);
    assert_eq!(
        again["dependencies"].as_array().map(Vec::len),
        found["dependencies"].as_array().map(Vec::len),
        "{again}"
    );
    assert_eq!(status(&again, "guest/7").as_deref(), Some("critical"));

    let (code, _, stderr) = output(&folder, &["replay", "nowhere"]);
    assert!(code == 1 && stderr.contains("nowhere cannot be read"), "{stderr}");
}
