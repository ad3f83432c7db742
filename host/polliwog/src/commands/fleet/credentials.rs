//! `fleet credentials`: the passwords of a fleet at its broker, the broker's accounts, and the keys that seal records.
//!
//! `passwords.toml` holds all of them; the other files follow from it: `accounts.conf` for the broker, and a file for
//! the operator and for each device, to copy to that host.

use crate::fleet_host::{DEVICE_KEY, OPERATOR_KEY};
use crate::output::print;
use anyhow::Context;
use broker::{Key, OPERATOR, account_name, accounts};
use engine::random_bytes;
use fleet::names::{RULE, is_name};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The maximum size of the file of passwords in bytes.
const LARGEST: u64 = 64 << 20;
/// The file with every password.
const PASSWORDS: &str = "passwords.toml";
/// The entry of that file for the key of the operators. Names of devices have no such letter.
const KEY: &str = "operator.key";
/// The file for the broker.
const ACCOUNTS: &str = "accounts.conf";

pub(super) fn credentials(device: &str, dir: &Path, revoke: bool) -> anyhow::Result<u8> {
    anyhow::ensure!(is_name(device), "{device:?} cannot be the id of a device: use {RULE}");
    anyhow::ensure!(device != OPERATOR, "{device:?} is the name of the operator's account: choose another id");
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    created.with_context(|| format!("cannot create {}", dir.display()))?;
    let mut passwords = read(&dir.join(PASSWORDS))?;
    let own = dir.join(format!("{device}.toml"));
    if revoke {
        anyhow::ensure!(passwords.remove(device).is_some(), "{} has no device {device:?}", dir.display());
        let _ = std::fs::remove_file(&own);
    } else {
        passwords.insert(device.to_owned(), made());
    }
    let operator = passwords.entry(OPERATOR.to_owned()).or_insert_with(made).clone();
    let key = passwords.entry(KEY.to_owned()).or_insert_with(made).clone();
    let key = Key::from_hex(&key).with_context(|| format!("{}/{PASSWORDS}: {KEY} is damaged", dir.display()))?;
    let listed: toml::Table =
        passwords.iter().map(|(name, password)| (name.clone(), toml::Value::from(password.as_str()))).collect();
    // First: a password that is not kept could not be told to the broker again.
    write(&dir.join(PASSWORDS), &toml::to_string(&listed)?)?;
    write(&dir.join(format!("{OPERATOR}.toml")), &file_of(OPERATOR, &operator, (OPERATOR_KEY, &key)))?;
    for name in [OPERATOR, KEY] {
        passwords.remove(name);
    }
    // All of them, because files of an earlier version have no key.
    for (name, password) in &passwords {
        let file = file_of(&account_name(name), password, (DEVICE_KEY, &key.of_device(name)));
        write(&dir.join(format!("{name}.toml")), &file)?;
    }
    write(&dir.join(ACCOUNTS), &accounts(&operator, &passwords))?;
    let dir = dir.display();
    print(&match revoke {
        true => {
            format!(
                "{device} is removed from {dir}/{ACCOUNTS}: copy that next to the broker's configuration, and restart the broker"
            )
        }
        false => format!(
            "1. Copy {dir}/{ACCOUNTS} next to the broker's configuration, which needs the line: include \"{ACCOUNTS}\"; restart \
             the broker, because a reload applies new accounts only in part\n2. Copy {dir}/{device}.toml to the device, and name \
             it as [fleet] credentials\n3. The operator needs {dir}/{OPERATOR}.toml, likewise"
        ),
    })?;
    Ok(0)
}

/// Reads the passwords by name. A missing file has none.
fn read(file: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    if !file.exists() {
        return Ok(BTreeMap::new());
    }
    let text = config::read_text(file, LARGEST).map_err(|why| anyhow::anyhow!(why))?;
    let table: toml::Table = toml::from_str(&text).with_context(|| format!("{} is damaged", file.display()))?;
    let password = |(name, value): (String, toml::Value)| {
        let password = value.as_str().with_context(|| format!("{}: {name} is not a text", file.display()))?.to_owned();
        Ok((name, password))
    };
    table.into_iter().map(password).collect()
}

fn file_of(user: &str, password: &str, (name, key): (&str, &Key)) -> String {
    format!("user = {user:?}\npassword = {password:?}\n{name} = {:?}\n", key.to_hex())
}

fn made() -> String {
    model::hex(&random_bytes::<32>())
}

/// Replaces a file at once. Only its owner may read it.
fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let draft = file.with_extension("draft");
    let written = || {
        let mut open = std::fs::OpenOptions::new();
        let mut opened = open.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        opened.write_all(text.as_bytes())?;
        opened.sync_all()?;
        std::fs::rename(&draft, file)
    };
    written().with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_kept_and_a_revoked_device_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("credentials");
        let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        credentials("host-1", &dir, false).unwrap();
        let (operator, first) = (text("operator.toml"), text("host-1.toml"));
        credentials("host-2", &dir, false).unwrap();
        assert_eq!((text("operator.toml"), text("host-1.toml")), (operator.clone(), first.clone()));
        let key = |text: &str, name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
            Key::from_hex(found.unwrap().trim_end_matches('"')).unwrap()
        };
        assert_eq!(key(&first, DEVICE_KEY), key(&operator, OPERATOR_KEY).of_device("host-1"));
        assert!(!text(ACCOUNTS).contains(&key(&operator, OPERATOR_KEY).to_hex()) && !text(ACCOUNTS).contains(KEY));
        assert!(text(ACCOUNTS).contains("agent-host-1") && text(ACCOUNTS).contains("agent-host-2"));
        credentials("host-1", &dir, false).unwrap();
        assert_ne!(text("host-1.toml"), first);
        credentials("host-1", &dir, true).unwrap();
        assert!(!text(ACCOUNTS).contains("host-1") && !dir.join("host-1.toml").exists());
        for (device, revoke, why) in
            [("host-1", true, "has no device"), ("a.b", false, "id of a device"), ("operator", false, "operator's")]
        {
            assert!(credentials(device, &dir, revoke).unwrap_err().to_string().contains(why), "{device}");
        }
        std::fs::write(dir.join(PASSWORDS), "[").unwrap();
        assert!(credentials("host-3", &dir, false).unwrap_err().to_string().contains("is damaged"));
    }
}
