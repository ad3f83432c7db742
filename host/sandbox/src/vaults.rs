//! Captured secrets of targets, in memory and, if a plugin asks for that, on disk.
//!
//! A file contains the durable values of one target, encrypted (ChaCha20-Poly1305, RFC 8439) with a key of this
//! installation. It is bound to the target, the kind and the origins: a target with another server does not get the
//! values of the earlier one.

use crate::cache::Owner;
use egress::{Captured, DurableStore, DurableValue, Origin, OriginGrant};
use lru::LruCache;
use model::{Kind, TargetId, Timestamp};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::time::Instant;

/// Maximum number of owners with captured secrets. The least recently polled one is removed first and has to log in
/// again.
const VAULTS: usize = 1 << 16;
/// The first bytes of a file.
const MAGIC: &[u8] = b"polliwog captured secrets 1\n";
/// Maximum length of a file in bytes: 16 values of 4 KiB, and what JSON adds.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The captured secrets of each target, for each version of its plugin.
pub(crate) struct Vaults {
    held: Mutex<LruCache<Owner, Held>>,
    folder: Option<Arc<Folder>>,
}

struct Held {
    kind: Kind,
    origins: Vec<Origin>,
    captured: Arc<Captured>,
}

/// Where durable values are stored.
#[derive(Clone)]
pub struct DurableFolder {
    /// The folder. It is created.
    pub path: PathBuf,
    /// A secret of this installation.
    pub key: [u8; 32],
}

impl fmt::Debug for DurableFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

/// The folder with the files of all targets.
struct Folder {
    path: PathBuf,
    key: LessSafeKey,
    /// The names of the files.
    files: Mutex<BTreeSet<String>>,
}

/// The file of a target, and what its values are bound to.
struct Vault {
    folder: Arc<Folder>,
    /// The name of the file.
    name: String,
    kind: Kind,
    origins: Vec<String>,
    /// The time when the values were restored.
    restored: (Timestamp, Instant),
}

#[derive(Serialize, Deserialize)]
struct Content {
    kind: String,
    origins: Vec<String>,
    values: Vec<Stored>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    name: String,
    value: String,
    expires: i64,
}

impl Vaults {
    /// Creates the vaults. `durable` is `None` if all values are kept in memory only.
    pub(crate) fn new(durable: Option<DurableFolder>) -> io::Result<Self> {
        let folder = durable.map(|durable| Folder::open(&durable).map(Arc::new)).transpose()?;
        // `LruCache::new` reserves memory for its capacity. `of` enforces the limit.
        Ok(Self { held: Mutex::new(LruCache::unbounded()), folder })
    }

    /// Returns the captured secrets of an owner. A poll that holds them keeps them, even if the target changes. Secrets
    /// of other origins are never returned: then the poll has none, and keeps none.
    pub(crate) fn of(&self, owner: &Owner, (kind, granted): (&Kind, &[OriginGrant]), now: Timestamp) -> Arc<Captured> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let origins = || granted.iter().map(|granted| &granted.origin);
        let found = held.get_or_insert(owner.clone(), || Held {
            kind: kind.clone(),
            origins: origins().cloned().collect(),
            captured: Arc::new(self.restored(&owner.target, (kind, granted), now)),
        });
        if !found.origins.iter().eq(origins()) {
            return Arc::default();
        }
        let captured = found.captured.clone();
        if held.len() > VAULTS {
            held.pop_lru();
        }
        captured
    }

    fn restored(&self, target: &TargetId, (kind, origins): (&Kind, &[OriginGrant]), now: Timestamp) -> Captured {
        let Some(folder) = self.folder.clone() else { return Captured::default() };
        let origins = origins.iter().map(|granted| granted.origin.to_string()).collect();
        let vault = Vault {
            folder,
            name: file_name(target, kind),
            kind: kind.clone(),
            origins,
            restored: (now, Instant::now()),
        };
        let values = vault.values();
        Captured::restored(Arc::new(vault), values)
    }

    /// Removes the captured secrets of a target or channel.
    pub(crate) fn forget(&self, target: &TargetId, kind: &Kind) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of = |(owner, held): &(&Owner, &Held)| owner.target == *target && held.kind == *kind;
        let owners: Vec<Owner> = held.iter().filter(is_of).map(|(owner, _)| owner.clone()).collect();
        for held in owners.iter().filter_map(|owner| held.pop(owner)) {
            held.captured.disconnect();
        }
        if let Some(folder) = &self.folder {
            folder.remove(&file_name(target, kind));
        }
    }

    /// Removes the captured secrets of an owner from memory.
    pub(crate) fn take(&self, owner: &Owner) -> Option<Arc<Captured>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).pop(owner).map(|held| held.captured)
    }

    /// Removes the stored secrets of all targets and channels except these.
    pub(crate) fn forget_others(&self, known: &BTreeSet<(TargetId, Kind)>) {
        let Some(folder) = &self.folder else { return };
        let known: BTreeSet<String> = known.iter().map(|(target, kind)| file_name(target, kind)).collect();
        let stored = folder.files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stored.difference(&known).for_each(|name| folder.remove(name));
    }
}

/// The name of the file of a target or channel, which can have the same id.
fn file_name(target: &TargetId, kind: &Kind) -> String {
    format!("{target}.{kind}")
}

impl Folder {
    fn open(DurableFolder { path, key }: &DurableFolder) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), MAGIC);
        let key = UnboundKey::new(&CHACHA20_POLY1305, derived.as_ref()).map_err(|_| io::Error::other("not a key"))?;
        let names = fs::read_dir(path)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(Self { path: path.clone(), key: LessSafeKey::new(key), files: Mutex::new(names.collect()) })
    }

    fn has(&self, name: &str) -> bool {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    fn remove(&self, name: &str) {
        if !self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(name) {
            return;
        }
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{} with captured secrets cannot be removed ({error}): remove it", path.display());
            }
            _ => {}
        }
    }

    fn write(&self, name: &str, mut text: Vec<u8>) -> io::Result<()> {
        let mut nonce = [0; NONCE_LEN];
        let failed = |_| io::Error::other("it cannot be encrypted");
        SystemRandom::new().fill(&mut nonce).map_err(failed)?;
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(unique, Aad::from(name), &mut text).map_err(failed)?;
        let mut draft = NamedTempFile::new_in(&self.path)?;
        for part in [MAGIC, &nonce, &text] {
            draft.write_all(part)?;
        }
        draft.as_file().sync_all()?;
        draft.persist(self.path.join(name)).map_err(|error| error.error)?;
        File::open(&self.path)?.sync_all()?;
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        Ok(())
    }

    fn read(&self, name: &str) -> io::Result<Content> {
        let invalid = || io::Error::other("it was not written by this installation");
        let file = read_bounded(&self.path.join(name))?;
        let parts = file.strip_prefix(MAGIC).and_then(|rest| rest.split_at_checked(NONCE_LEN));
        let (nonce, sealed) = parts.ok_or_else(invalid)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| invalid())?;
        let mut sealed = sealed.to_vec();
        let text = self.key.open_in_place(nonce, Aad::from(name), &mut sealed).map_err(|_| invalid())?;
        Ok(serde_json::from_slice(text)?)
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("it is too long"));
    }
    fs::read(path)
}

impl Vault {
    /// Returns the time in milliseconds since the Unix epoch.
    fn now(&self) -> i64 {
        let (at, instant) = self.restored;
        at.after(instant.elapsed()).as_millis()
    }

    /// Reads the stored values. If they cannot be used, the plugin has to log in again.
    fn values(&self) -> Vec<DurableValue> {
        if !self.folder.has(&self.name) {
            return Vec::new();
        }
        let content = match self.folder.read(&self.name) {
            Ok(content) => content,
            Err(error) => {
                let path = self.folder.path.join(&self.name);
                tracing::warn!(
                    "{} cannot be used ({error}): its plugin has to log in again, and may need new credentials",
                    path.display()
                );
                return Vec::new();
            }
        };
        if content.kind != self.kind.as_str() || content.origins != self.origins {
            return Vec::new();
        }
        let now = self.now();
        let value = |stored: Stored| {
            let left = u64::try_from(stored.expires - now).ok().filter(|left| *left > 0)?;
            let (name, value) = (stored.name, SecretString::from(stored.value));
            Some(DurableValue { name, value, left: Duration::from_millis(left) })
        };
        content.values.into_iter().filter_map(value).collect()
    }
}

impl DurableStore for Vault {
    fn store(&self, values: &[DurableValue]) -> Result<(), String> {
        if values.is_empty() {
            self.folder.remove(&self.name);
            return Ok(());
        }
        let now = self.now();
        let stored = |value: &DurableValue| Stored {
            name: value.name.clone(),
            value: value.value.expose_secret().to_owned(),
            expires: now.saturating_add(i64::try_from(value.left.as_millis()).unwrap_or(i64::MAX)),
        };
        let content = Content {
            kind: self.kind.to_string(),
            origins: self.origins.clone(),
            values: values.iter().map(stored).collect(),
        };
        let text = serde_json::to_vec(&content).map_err(|error| error.to_string())?;
        let path = || self.folder.path.join(&self.name).display().to_string();
        self.folder.write(&self.name, text).map_err(|error| format!("{}: {error}", path()))
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vault({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use egress::Tls;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn durable(path: &Path, key: u8) -> Option<DurableFolder> {
        Some(DurableFolder { path: path.to_owned(), key: [key; 32] })
    }

    fn origins(url: &str) -> Vec<OriginGrant> {
        vec![OriginGrant { origin: Origin::parse(url).unwrap().1, tls: Tls::system().unwrap() }]
    }

    fn owner(target: &str, plugin: u8) -> Owner {
        Owner { target: TargetId::new(target).unwrap(), plugin: [plugin; 32] }
    }

    fn kind(name: &str) -> Kind {
        Kind::new(name).unwrap()
    }

    /// The stored values of a target, as a new start of the host finds them.
    fn found(path: &Path, key: u8, (target, kind_name, url): (&str, &str, &str)) -> Vec<(String, String)> {
        let folder = Arc::new(Folder::open(&durable(path, key).unwrap()).unwrap());
        let origins = origins(url).iter().map(|granted| granted.origin.to_string()).collect();
        let name = file_name(&TargetId::new(target).unwrap(), &kind(kind_name));
        let vault = Vault { folder, name, kind: kind(kind_name), origins, restored: (NOW, Instant::now()) };
        let text = |value: DurableValue| (value.name, value.value.expose_secret().to_owned());
        vault.values().into_iter().map(text).collect()
    }

    #[test]
    fn stored_secrets_are_encrypted_and_bound_to_target_kind_and_origin() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("captured");
        let vaults = Vaults::new(durable(path, 1)).unwrap();
        let folder = vaults.folder.clone().unwrap();
        let value = |name: &str, left| DurableValue {
            name: name.to_owned(),
            value: SecretString::from("refresh-token-1"),
            left: Duration::from_millis(left),
        };
        let (name, origins_of) = ("shop.shop".to_owned(), vec!["https://shop.example".to_owned()]);
        let restored = (NOW, Instant::now());
        let vault = Vault { folder, name, kind: kind("shop"), origins: origins_of, restored };
        vault.store(&[value("refresh", 60_000), value("over", 0)]).unwrap();
        let (shop, url) = ("shop", "https://shop.example/api");
        let file = fs::read(path.join("shop.shop")).unwrap();
        assert!(!file.windows(7).any(|part| part == b"refresh"), "it is not encrypted");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(path), mode(&path.join("shop.shop"))), (0o700, 0o600));
        let expected = vec![("refresh".to_owned(), "refresh-token-1".to_owned())];
        assert_eq!(found(path, 1, (shop, "shop", url)), expected);
        fs::copy(path.join("shop.shop"), path.join("shop.other")).unwrap();
        assert_eq!(found(path, 1, (shop, "other", url)), [], "another kind");
        assert_eq!(found(path, 1, (shop, "shop", "https://other.example/")), [], "another server");
        assert_eq!(found(path, 1, (shop, "shop", "http://shop.example/")), [], "without TLS");
        assert_eq!(found(path, 2, (shop, "shop", url)), [], "another installation");
        fs::copy(path.join("shop.shop"), path.join("thief.shop")).unwrap();
        assert_eq!(found(path, 1, ("thief", "shop", url)), [], "another target");
        for damage in [&file[..40], &file[..file.len() - 1], b"", MAGIC] {
            fs::write(path.join("shop.shop"), damage).unwrap();
            assert_eq!(found(path, 1, (shop, "shop", url)), [], "{} bytes", damage.len());
        }
        fs::write(path.join("shop.shop"), &file).unwrap();
        let vaults = Vaults::new(durable(path, 1)).unwrap();
        assert!(vaults.of(&owner(shop, 1), (&kind("shop"), &origins(url)), NOW).has_values());
        let elsewhere = origins("https://other.example/");
        assert!(!vaults.of(&owner(shop, 1), (&kind("shop"), &elsewhere), NOW).has_values());
        assert!(
            vaults.of(&owner(shop, 2), (&kind("shop"), &origins(url)), NOW).has_values(),
            "the next version has it, too"
        );
        vaults.forget_others(&BTreeSet::from([(TargetId::new(shop).unwrap(), kind("shop"))]));
        assert!(path.join("shop.shop").exists() && !path.join("thief.shop").exists());
        let captured = vaults.of(&owner(shop, 1), (&kind("shop"), &origins(url)), NOW);
        vaults.forget(&TargetId::new(shop).unwrap(), &kind("shop"));
        assert!(!path.join("shop.shop").exists() && captured.has_values() && !captured.passing().has_values());
        assert!(!vaults.of(&owner(shop, 2), (&kind("shop"), &origins(url)), NOW).has_values());
    }
}
