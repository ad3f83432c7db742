//! Captured secrets of targets, in memory and, if a plugin asks for that, on disk.
//!
//! A file contains the durable values of one target, encrypted (ChaCha20-Poly1305, RFC 8439) with a key of this
//! installation. It is bound to the target, the kind, the origins and the secrets: a target with another server or
//! another account does not get the values of the earlier one.

use crate::cache::Owner;
use egress::{Captured, DurableStore, DurableValue, Grant, Origin, OriginGrant};
use lru::LruCache;
use model::{Kind, TargetId, Timestamp, hex};
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::time::Instant;

/// Maximum number of owners with captured secrets. The least recently polled one is removed first and has to log in
/// again.
const VAULTS: usize = 1 << 16;
/// The first bytes of a file.
const MAGIC: &[u8] = b"polliwog captured secrets 1\n";
/// The age after which a file has only values that have expired. A value is kept for a week at most.
const OLD: Duration = Duration::from_secs(8 * 24 * 60 * 60);
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
    /// The key of the digests of what files are bound to.
    binding: [u8; 32],
    /// The names of the files.
    files: Mutex<BTreeSet<String>>,
}

/// The file of a target, and what its values are bound to.
struct Vault {
    folder: Arc<Folder>,
    /// The name of the file.
    name: String,
    /// The digest of what the values are bound to, in hex digits.
    bound: String,
    is_closed: AtomicBool,
    /// The time when the values were restored.
    restored: (Timestamp, Instant),
}

#[derive(Serialize, Deserialize)]
struct Content {
    bound: String,
    values: Vec<Stored>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    name: String,
    value: String,
    expires: i64,
}

impl Vaults {
    /// Creates the vaults. `durable` is `None` if all values are kept in memory only, as they are if the folder cannot
    /// be used.
    pub(crate) fn new(durable: Option<DurableFolder>) -> Self {
        let opened = |durable: DurableFolder| match Folder::open(&durable) {
            Ok(folder) => Some(Arc::new(folder)),
            Err(error) => {
                let path = durable.path.display();
                tracing::warn!("log-ins cannot be kept in {path} ({error}): plugins log in again after a restart");
                None
            }
        };
        // `LruCache::new` reserves memory for its capacity. `of` enforces the limit.
        Self { held: Mutex::new(LruCache::unbounded()), folder: durable.and_then(opened) }
    }

    /// Returns the captured secrets of an owner. A poll that holds them keeps them, even if the target changes. Secrets
    /// of other origins are never returned: then the poll has none, and keeps none.
    pub(crate) fn of(&self, owner: &Owner, (kind, grant): (&Kind, &Grant), now: Timestamp) -> Arc<Captured> {
        let origins = || grant.origins.iter().map(|granted| &granted.origin);
        let matching = |held: &Held| match held.origins.iter().eq(origins()) {
            true => held.captured.clone(),
            false => Arc::default(),
        };
        if let Some(found) = self.held().get(owner) {
            return matching(found);
        }
        // Without the lock, because it may read a file.
        let captured = Arc::new(self.restored(&owner.target, (kind, grant), now));
        let mut held = self.held();
        let new = || Held { kind: kind.clone(), origins: origins().cloned().collect(), captured };
        let found = matching(held.get_or_insert(owner.clone(), new));
        if held.len() > VAULTS {
            held.pop_lru();
        }
        found
    }

    fn held(&self) -> MutexGuard<'_, LruCache<Owner, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn restored(&self, target: &TargetId, (kind, grant): (&Kind, &Grant), now: Timestamp) -> Captured {
        let Some(folder) = self.folder.clone() else { return Captured::default() };
        let vault = Vault {
            bound: hex(&grant.digest(&folder.binding)),
            name: file_name(target, kind),
            folder,
            is_closed: AtomicBool::new(false),
            restored: (now, Instant::now()),
        };
        let values = vault.values();
        Captured::restored(Arc::new(vault), values)
    }

    /// Removes the captured secrets of a target or channel.
    pub(crate) fn forget(&self, target: &TargetId, kind: &Kind) {
        self.forget_if(target, kind, |_| true);
        if let Some(folder) = &self.folder {
            folder.remove(&file_name(target, kind));
        }
    }

    /// Removes the captured secrets from memory that a poll of an earlier definition left behind. `origins` are those
    /// of the present one.
    pub(crate) fn forget_others(&self, target: &TargetId, kind: &Kind, origins: &[OriginGrant]) {
        self.forget_if(target, kind, |held| !held.origins.iter().eq(origins.iter().map(|granted| &granted.origin)));
    }

    fn forget_if(&self, target: &TargetId, kind: &Kind, is_gone: impl Fn(&Held) -> bool) {
        let mut held = self.held();
        let is_of = |(owner, held): &(&Owner, &Held)| owner.target == *target && held.kind == *kind && is_gone(held);
        let owners: Vec<Owner> = held.iter().filter(is_of).map(|(owner, _)| owner.clone()).collect();
        let gone: Vec<Held> = owners.iter().filter_map(|owner| held.pop(owner)).collect();
        drop(held);
        gone.iter().for_each(|held| held.captured.disconnect());
    }

    /// Removes the captured secrets of an owner from memory.
    pub(crate) fn take(&self, owner: &Owner) -> Option<Arc<Captured>> {
        self.held().pop(owner).map(|held| held.captured)
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
        let derived = |of: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), of);
        let sealing = UnboundKey::new(&CHACHA20_POLY1305, derived(MAGIC).as_ref());
        let sealing = LessSafeKey::new(sealing.map_err(|_| io::Error::other("not a key"))?);
        let mut binding = [0; 32];
        binding.copy_from_slice(derived(b"what captured secrets are bound to").as_ref());
        let mut files = BTreeSet::new();
        for entry in fs::read_dir(path)?.flatten() {
            let age = entry.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
            match entry.file_name().into_string() {
                Ok(name) if age.is_none_or(|age| age < OLD) => drop(files.insert(name)),
                // Of a target that was removed while no host ran, or a draft.
                _ => drop(fs::remove_file(entry.path())),
            }
        }
        Ok(Self { path: path.clone(), key: sealing, binding, files: Mutex::new(files) })
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

    fn write(&self, name: &str, mut text: Vec<u8>, is_closed: &AtomicBool) -> io::Result<()> {
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
        {
            // A file that is removed at the same time must not come back.
            let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            if is_closed.load(Ordering::Acquire) {
                return Ok(());
            }
            draft.persist(self.path.join(name)).map_err(|error| error.error)?;
            files.insert(name.to_owned());
        }
        File::open(&self.path)?.sync_all()
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
        if content.bound != self.bound {
            // They are of another server or account.
            self.folder.remove(&self.name);
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
        let content = Content { bound: self.bound.clone(), values: values.iter().map(stored).collect() };
        let text = serde_json::to_vec(&content).map_err(|error| error.to_string())?;
        let path = || self.folder.path.join(&self.name).display().to_string();
        self.folder.write(&self.name, text, &self.is_closed).map_err(|error| format!("{}: {error}", path()))
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
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
    use egress::{Secrets, Tls};

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn durable(path: &Path, key: u8) -> Option<DurableFolder> {
        Some(DurableFolder { path: path.to_owned(), key: [key; 32] })
    }

    fn grant(url: &str, password: &str) -> Grant {
        let (base, origin) = Origin::parse(url).unwrap();
        let secrets = [("password".to_owned(), SecretString::from(password))].into();
        let origins = vec![OriginGrant { origin, tls: Tls::system().unwrap() }];
        Grant::new(base, origins, Secrets::new(secrets).unwrap())
    }

    fn owner(target: &str, plugin: u8) -> Owner {
        Owner { target: TargetId::new(target).unwrap(), plugin: [plugin; 32] }
    }

    fn kind(name: &str) -> Kind {
        Kind::new(name).unwrap()
    }

    fn vault(path: &Path, key: u8, (target, kind_name, grant): (&str, &str, &Grant)) -> Vault {
        let folder = Arc::new(Folder::open(&durable(path, key).unwrap()).unwrap());
        Vault {
            bound: hex(&grant.digest(&folder.binding)),
            folder,
            name: file_name(&TargetId::new(target).unwrap(), &kind(kind_name)),
            is_closed: AtomicBool::new(false),
            restored: (NOW, Instant::now()),
        }
    }

    /// The stored values of a target, as a new start of the host finds them.
    fn found(path: &Path, key: u8, of: (&str, &str, &Grant)) -> Vec<(String, String)> {
        let text = |value: DurableValue| (value.name, value.value.expose_secret().to_owned());
        vault(path, key, of).values().into_iter().map(text).collect()
    }

    fn value(name: &str, left: u64) -> DurableValue {
        let value = SecretString::from("refresh-token-1");
        DurableValue { name: name.to_owned(), value, left: Duration::from_millis(left) }
    }

    const URL: &str = "https://shop.example/api";

    // With the real clock, a value that expires at once would be kept as long as the file takes to be written.
    #[tokio::test(start_paused = true)]
    async fn stored_secrets_are_encrypted_and_bound_to_target_kind_origin_and_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("captured");
        let own = grant(URL, "a password");
        vault(path, 1, ("shop", "shop", &own)).store(&[value("refresh", 60_000), value("over", 0)]).unwrap();
        let file = fs::read(path.join("shop.shop")).unwrap();
        assert!(!file.windows(7).any(|part| part == b"refresh"), "it is not encrypted");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(path), mode(&path.join("shop.shop"))), (0o700, 0o600));
        let expected = vec![("refresh".to_owned(), "refresh-token-1".to_owned())];
        assert_eq!(found(path, 1, ("shop", "shop", &own)), expected);
        assert_eq!(found(path, 2, ("shop", "shop", &own)), [], "another installation");
        for (to, target, kind) in [("shop.other", "shop", "other"), ("thief.shop", "thief", "shop")] {
            fs::copy(path.join("shop.shop"), path.join(to)).unwrap();
            assert_eq!(found(path, 1, (target, kind, &own)), [], "{to}");
        }
        for damage in [&file[..40], &file[..file.len() - 1], b"", MAGIC] {
            fs::write(path.join("shop.shop"), damage).unwrap();
            assert_eq!(found(path, 1, ("shop", "shop", &own)), [], "{} bytes", damage.len());
        }
        for other in [
            grant("https://other.example/", "a password"),
            grant("http://shop.example/", "a password"),
            grant(URL, "b password"),
        ] {
            fs::write(path.join("shop.shop"), &file).unwrap();
            assert_eq!(found(path, 1, ("shop", "shop", &other)), []);
            assert!(!path.join("shop.shop").exists(), "it is of no use any more");
        }
    }

    #[test]
    fn secrets_of_a_target_that_is_gone_do_not_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("captured");
        let (own, elsewhere) = (grant(URL, "a password"), grant("https://other.example/", "a password"));
        let stored = || vault(path, 1, ("shop", "shop", &own)).store(&[value("refresh", 60_000)]).unwrap();
        stored();
        let (id, kind) = (TargetId::new("shop").unwrap(), kind("shop"));
        let vaults = Vaults::new(durable(path, 1));
        let of = |version, grant: &Grant| vaults.of(&owner("shop", version), (&kind, grant), NOW);
        assert!(of(1, &own).has_values() && of(2, &own).has_values(), "the next version has it, too");
        assert!(!of(1, &elsewhere).has_values());
        let captured = of(1, &own);
        vaults.forget(&id, &kind);
        assert!(!path.join("shop.shop").exists() && captured.has_values() && !captured.passing().has_values());
        assert!(!of(2, &own).has_values());
        // A call that began before.
        let closed = vault(path, 1, ("shop", "shop", &own));
        closed.close();
        closed.store(&[value("refresh", 60_000)]).unwrap();
        assert!(!path.join("shop.shop").exists());
        // A poll of an earlier definition that came late.
        stored();
        let vaults = Vaults::new(durable(path, 1));
        let of = |grant: &Grant| vaults.of(&owner("shop", 1), (&kind, grant), NOW);
        assert!(of(&own).has_values() && !of(&elsewhere).has_values());
        vaults.forget_others(&id, &kind, &elsewhere.origins);
        assert!(path.join("shop.shop").exists());
        let (first, second) = (of(&elsewhere), of(&elsewhere));
        assert!(Arc::ptr_eq(&first, &second), "it keeps its own");
    }
}
