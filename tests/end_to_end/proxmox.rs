//! Proxmox products on the command line: `setup`, `replay` and `poll`.

use crate::command_line::tls_server;
use crate::support::{folder, output, poll_json, polliwog};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

const TOKEN: &str = "monitor@pve!polliwog=11111111-2222-3333-4444-555555555555";

#[test]
fn setup_shows_the_certificate_and_prints_a_valid_target() {
    let (_keep, folder) = folder();
    let url = format!("https://localhost:{}", tls_server());
    let (code, stdout, stderr) = output(&folder, &["setup", "pve", &url, "--json"]);
    let found: Value = serde_json::from_str(&stdout).unwrap();
    // The server answers every request with a list, which Proxmox never does.
    assert!(code == 1 && found["doubt"].as_str().unwrap().contains("does not answer as Proxmox VE does"), "{stderr}");
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

    let (_, text, doubt) = output(&folder, &["setup", "pve", &url]);
    assert!(
        doubt.contains("does not answer as Proxmox VE does"),
        "the server answers every request with a list: {doubt}"
    );
    assert!(text.contains(fingerprint) && text.contains("pvenode cert info") && text.contains("[[target]]"), "{text}");

    // A certificate that differs from the confirmed one fails without output on stdout.
    let other = "00".repeat(32);
    let arguments = ["setup", "pve", &url, "--fingerprint", &other];
    let (code, stdout, stderr) = output(&folder, &arguments);
    assert!(code == 1 && stdout.is_empty() && stderr.contains("not the one that you confirmed"), "{stdout}{stderr}");

    // A token is sent only to a server whose certificate is confirmed.
    let asked = polliwog(&folder, &["setup", "pve", &url, "--secret", "token=env:T"]).env("T", TOKEN).output().unwrap();
    let stderr = String::from_utf8(asked.stderr).unwrap();
    assert!(asked.status.code() == Some(1) && stderr.contains("so that the secret is not sent"), "{stderr}");

    for (arguments, code, says) in [
        (["setup", "pbs", "http://127.0.0.1:9"], 1, "nothing listens at 127.0.0.1:9"),
        (["setup", "pmg", "ftp://mail.example"], 64, "only http and https are supported"),
        (["setup", "pvx", "http://127.0.0.1:9"], 64, "no plugin serves kind pvx: there are "),
    ] {
        let (found, _, stderr) = output(&folder, &arguments);
        assert!(found == code && stderr.contains(says), "{arguments:?}: {found} {stderr}");
    }
}

/// A replay server. It stops when dropped.
struct Replay(Child);

impl Replay {
    /// Serves the folder `bodies`. Returns the URL as well.
    fn of(folder: &Path) -> (Self, String) {
        let mut child = polliwog(folder, &["replay", "bodies", "--port", "0"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let base =
            line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().trim_end_matches("/,").to_owned();
        (Self(child), base)
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn setup_lists_the_members_of_a_cluster() {
    let (_keep, folder) = folder();
    for product in ["pve", "pmg"] {
        let bodies = folder.join("bodies").join(product);
        fs::create_dir_all(&bodies).unwrap();
        // Every other path is served by the simulated estate.
        fs::write(bodies.join("unused.json"), "{}").unwrap();
    }
    let (_server, base) = Replay::of(&folder);
    let setup = |product: &str, secret: &str, more: &[&str]| {
        let url = format!("{base}/{product}/unused");
        let arguments = [&["setup", product, &url, "--json", "--secret", secret], more].concat();
        let output = polliwog(&folder, &arguments).env("T", TOKEN).env("P", "simulated & of no use").output().unwrap();
        let found = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        (output.status.code(), found, String::from_utf8(output.stderr).unwrap())
    };
    let names = |found: &Value| {
        let members = found["members"].as_array().unwrap();
        members.iter().map(|member| member["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (code, found, stderr) = setup("pve", "token=env:T", &[]);
    assert_eq!((code, names(&found)), (Some(0), vec!["pve2".to_owned(), "pve3".to_owned()]), "{stderr}");
    let toml = found["toml"].as_str().unwrap();
    assert!(toml.contains("192.0.2.2") && !toml.contains("tls"), "nothing is pinned over plain HTTP: {toml}");
    assert!(found["members"][0]["fingerprint"].as_str().unwrap().starts_with("A1:A1:"), "{found}");

    let (code, found, _) = setup("pve", "token=env:T", &["--username", "other@pam"]);
    let commands = found["commands"].as_array().unwrap();
    assert!(code == Some(0) && commands[0].as_str().unwrap().contains("pveum user add other@pam"), "{found}");
    assert_eq!(found["secrets"][0]["value"], "other@pam!monitor=THE-VALUE-SHOWN");

    let (code, found, stderr) = setup("pmg", "password=env:P", &["--username", "monitor@pmg"]);
    assert_eq!(code, Some(0), "{stderr}");
    // Without a certificate, the answering member is unknown.
    assert_eq!(names(&found), ["pmg1", "pmg2", "pmg3"]);
    assert!(found["toml"].as_str().unwrap().contains("username = \"monitor@pmg\""), "{found}");
    assert!(found["commands"][0].as_str().unwrap().contains("--userid monitor@pmg"), "{found}");

    for (product, secret, more, code, says) in [
        (
            "pmg",
            "password=env:T",
            &[][..],
            1,
            "does not accept the credentials (401, \"authentication failure\"): check the setting \"username\"",
        ),
        ("pmg", "token=env:T", &[], 64, "--secret: Proxmox Mail Gateway has no secret \"token\": there are password"),
        ("pve", "token=env:", &[], 64, "write NAME=env:VARIABLE"),
        ("pve", "token=env:T", &["--secret", "token=env:P"], 64, "is given twice"),
        ("pve", "token=env:P", &[], 1, "write the whole token"),
        (
            "pve",
            "token=env:T",
            &["--username", "me"],
            64,
            "--username: the secret \"token\" of this account would not be",
        ),
        ("pve", "token=env:T", &["--username", "me;reboot"], 64, "write at most 64 letters, digits and @ . _ - + only"),
        ("pve", "token=env:T", &["--fingerprint", "zz"], 64, "--fingerprint: "),
        ("pve", "token=env:T", &["--fingerprint", &"00".repeat(32)], 64, "so it has no certificate to compare"),
        ("pmg", "password=env:P", &["--username", "me"], 64, "--username: it is \"me\": write it with its realm"),
        ("pbs", "token=env:T", &[], 64, "has no other members"),
        ("http", "token=env:T", &["--username", "me"], 64, "--username: HTTP needs no account"),
    ] {
        let (found, _, stderr) = setup(product, secret, more);
        assert!(found == Some(code) && stderr.contains(says), "{product} {secret}: {found:?} {stderr}");
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
    let poll = |url: &str, more: &[&str]| {
        let arguments = [&["--kind", "pve", "--url", url, "--secret", "token=file:token"], more].concat();
        poll_json(&folder, &arguments)
    };
    let status = |found: &Value, name: &str| {
        let all = found["dependencies"].as_array().unwrap();
        all.iter().find(|of| of["name"] == name).map(|of| of["status"].as_str().unwrap().to_owned())
    };
    let (server, base) = Replay::of(&folder);
    let record = ["--record", "bodies/recorded.json"];
    let (code, found) = poll(&format!("{base}/pve/cluster_resources__mine"), &record);
    assert_eq!((code, status(&found, "guest/7").as_deref()), (2, Some("critical")), "{found}");
    assert_eq!(status(&found, "cluster/quorum").as_deref(), Some("ok"), "the simulated estate serves the rest");
    drop(server);

    // A served recording produces the same result.
    let (_server, base) = Replay::of(&folder);
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
