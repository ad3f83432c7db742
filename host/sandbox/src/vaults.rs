//! Captured secrets of targets, in memory and, if a plugin asks for that, on disk.
//!
//! A file contains the durable values of one target, encrypted (ChaCha20-Poly1305, RFC 8439) with a key of this
//! installation. It is bound to the target, the kind, the origins and the secrets: a target with another server or
//! another account does not get the values of the earlier one.

use crate::cache::Owner;
use egress::{Captured, DurableStore, DurableValue, Grant, Origin, OriginGrant};
use foldhash::fast::RandomState;
use model::{Kind, TargetId, Timestamp, hex};
use secrecy::{ExposeSecret, SecretString};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

mod folder;

pub use folder::DurableFolder;
use folder::{Content, Folder, Stored};

/// Maximum number of owners with captured secrets. Beyond it, the least recently polled sixteenth is removed and has to
/// log in again.
const VAULTS: usize = 1 << 16;

/// The captured secrets of each target, for each version of its plugin.
pub(crate) struct Vaults {
    held: Mutex<AllHeld>,
    folder: Option<Arc<Folder>>,
}

#[derive(Default)]
struct AllHeld {
    by_owner: HashMap<Owner, Held, RandomState>,
    /// The number of uses so far.
    uses: u64,
}

struct Held {
    /// The number of its latest use. A list in the order of use would cost each poll several cache misses.
    used: u64,
    /// The grant of its latest use: one that is the same has the same origins.
    grant: Weak<Grant>,
    kind: Kind,
    origins: Vec<Origin>,
    captured: Arc<Captured>,
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
        Self { held: Mutex::default(), folder: durable.and_then(opened) }
    }

    /// Returns the captured secrets of an owner. A poll that holds them keeps them, even if the target changes. Secrets
    /// of other origins are never returned: then the poll has none, and keeps none.
    pub(crate) fn of(&self, owner: &Owner, (kind, grant): (&Kind, &Arc<Grant>), now: Timestamp) -> Arc<Captured> {
        if let Some(found) = self.held().used(owner, grant) {
            return found;
        }
        // Without the lock, because it may read a file.
        let captured = Arc::new(self.restored(&owner.target, (kind, grant), now));
        let mut held = self.held();
        if let Some(found) = held.used(owner, grant) {
            return found;
        }
        held.uses += 1;
        let origins = grant.origins.iter().map(|granted| granted.origin.clone()).collect();
        let (used, grant) = (held.uses, Arc::downgrade(grant));
        let new = Held { used, grant, kind: kind.clone(), origins, captured: captured.clone() };
        held.by_owner.insert(owner.clone(), new);
        held.remove_surplus();
        captured
    }

    fn held(&self) -> MutexGuard<'_, AllHeld> {
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
        let is_of = |owner: &Owner, held: &mut Held| owner.target == *target && held.kind == *kind && is_gone(held);
        let gone: Vec<Held> = held.by_owner.extract_if(is_of).map(|(_, held)| held).collect();
        drop(held);
        gone.iter().for_each(|held| held.captured.disconnect());
    }

    /// Removes the captured secrets of an owner from memory.
    pub(crate) fn take(&self, owner: &Owner) -> Option<Arc<Captured>> {
        self.held().by_owner.remove(owner).map(|held| held.captured)
    }
}

impl AllHeld {
    /// Returns the captured secrets of an owner for a grant, and notes their use. None of another grant's origins.
    fn used(&mut self, owner: &Owner, grant: &Arc<Grant>) -> Option<Arc<Captured>> {
        let held = self.by_owner.get_mut(owner)?;
        self.uses += 1;
        held.used = self.uses;
        if !std::ptr::eq(held.grant.as_ptr(), Arc::as_ptr(grant)) {
            if !held.origins.iter().eq(grant.origins.iter().map(|granted| &granted.origin)) {
                return Some(Arc::default());
            }
            held.grant = Arc::downgrade(grant);
        }
        Some(held.captured.clone())
    }

    /// Removes those that were used least recently if there are too many.
    fn remove_surplus(&mut self) {
        if self.by_owner.len() <= VAULTS {
            return;
        }
        let mut uses: Vec<u64> = self.by_owner.values().map(|held| held.used).collect();
        let (_, oldest, _) = uses.select_nth_unstable(VAULTS / 16);
        let oldest = *oldest;
        self.by_owner.retain(|_, held| held.used > oldest);
    }
}

/// The name of the file of a target or channel, which can have the same id.
fn file_name(target: &TargetId, kind: &Kind) -> String {
    format!("{target}.{kind}")
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
    use super::folder::MAGIC;
    use super::*;
    use egress::{Secrets, Tls};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn durable(path: &Path, key: u8) -> Option<DurableFolder> {
        Some(DurableFolder { path: path.to_owned(), key: [key; 32] })
    }

    fn grant(url: &str, password: &str) -> Arc<Grant> {
        let (base, origin) = Origin::parse(url).unwrap();
        let secrets = [("password".to_owned(), SecretString::from(password))].into();
        let origins = vec![OriginGrant { origin, tls: Tls::system().unwrap() }];
        Arc::new(Grant::new(base, origins, Secrets::new(secrets).unwrap()))
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
        let of = |version, grant: &Arc<Grant>| vaults.of(&owner("shop", version), (&kind, grant), NOW);
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
        let of = |grant: &Arc<Grant>| vaults.of(&owner("shop", 1), (&kind, grant), NOW);
        assert!(of(&own).has_values() && !of(&elsewhere).has_values());
        vaults.forget_others(&id, &kind, &elsewhere.origins);
        assert!(path.join("shop.shop").exists());
        let (first, second) = (of(&elsewhere), of(&elsewhere));
        assert!(Arc::ptr_eq(&first, &second), "it keeps its own");
    }

    #[test]
    fn the_least_recently_used_ones_are_removed() {
        let vaults = Vaults::new(None);
        let own = grant(URL, "a password");
        let of = |id: String| vaults.of(&owner(&id, 1), (&kind("shop"), &own), NOW);
        let first = of("first".to_owned());
        let last = of("last".to_owned());
        for id in 2..VAULTS {
            of(format!("t{id}"));
        }
        assert!(Arc::ptr_eq(&first, &of("first".to_owned())) && vaults.held().by_owner.len() == VAULTS);
        of("one-more".to_owned());
        let left = vaults.held().by_owner.len();
        assert!((VAULTS / 10 * 9..VAULTS).contains(&left), "{left}");
        assert!(Arc::ptr_eq(&first, &of("first".to_owned())), "it was used");
        assert!(!Arc::ptr_eq(&last, &of("last".to_owned())), "it was not used for longest");
    }
}
