//! Rights. Proxmox hides what a token may not see and answers with a shorter list, so an empty one can mean either.

use crate::Look;
use crate::nodes::{Nodes, State};
use crate::resources::Resources;
use polliwog_sdk::lenient::{Field, Flag};
use proxmox::{Product, list};
use std::collections::{BTreeMap, BTreeSet};

/// What each privilege lets one see. Role PVEAuditor has them all.
const NEEDED: [(&str, &str); 3] = [("Sys.Audit", "nodes"), ("VM.Audit", "guests"), ("Datastore.Audit", "storages")];

/// Privileges by object, and whether each is handed down.
type Permissions = BTreeMap<String, BTreeMap<String, Field<Flag>>>;

/// Says so in the dependency `api` where something is not to be seen for want of rights, and gives the nodes that the token may
/// not hear.
pub(crate) fn report(look: &mut Look, resources: &Resources, nodes: &Nodes) -> BTreeSet<String> {
    let mute = nodes.iter().filter(|(_, node)| node.state == State::Online && !node.itself.speaks);
    let mut mute: BTreeSet<String> = mute.map(|(name, _)| name.clone()).collect();
    if mute.is_empty() && !resources.guests.is_empty() && !resources.storages.is_empty() {
        return mute;
    }
    let [answer] = look.api.ask(["/access/permissions"]);
    let why = match answer.read::<Permissions>() {
        Ok(permissions) => {
            mute.retain(|node| !may_hear(&permissions, node));
            missing(&permissions).or_else(|| unheard(&mute))
        }
        // Without an answer nobody can say that the lists are whole.
        Err(trouble) => Some(format!("whether everything may be seen cannot be told: {}", trouble.sentence)),
    };
    if let Some(why) = why {
        look.warn_of_api(&why);
    }
    mute
}

fn may_hear(permissions: &Permissions, node: &str) -> bool {
    let of_node = format!("/nodes/{node}");
    let paths = ["/", "/nodes", &of_node];
    paths.iter().filter_map(|path| permissions.get(*path)).any(|held| held.contains_key(NEEDED[0].0))
}

fn unheard(nodes: &BTreeSet<String>) -> Option<String> {
    let names: Vec<String> = nodes.iter().cloned().collect();
    let lacking = || format!("the token lacks {} on {}: {}", NEEDED[0].0, list(&names), Product::Ve.grant_rights());
    (!names.is_empty()).then(lacking)
}

/// What is lacking of what is needed anywhere at all.
fn missing(permissions: &Permissions) -> Option<String> {
    let held = |privilege: &str| permissions.values().any(|held| held.contains_key(privilege));
    let (privileges, things): (Vec<&str>, Vec<&str>) = NEEDED.into_iter().filter(|(needed, _)| !held(needed)).unzip();
    (!privileges.is_empty()).then(|| {
        format!(
            "the token lacks {}, so {} are hidden from it: {}",
            privileges.join(", "),
            things.join(", "),
            Product::Ve.grant_rights()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacking_privileges_are_named() {
        let permissions = |json: &str| serde_json::from_str::<Permissions>(json).unwrap();
        let all = permissions(r#"{"/":{"Sys.Audit":1,"VM.Audit":1,"Datastore.Audit":"1"}}"#);
        assert_eq!(missing(&all), None);
        let some = missing(&permissions(r#"{"/vms":{"VM.Audit":1}}"#)).unwrap();
        assert!(
            some.starts_with("the token lacks Sys.Audit, Datastore.Audit, so nodes, storages are hidden"),
            "{some}"
        );
        for (json, expected) in [
            (r#"{"/":{"Sys.Audit":1}}"#, true),
            (r#"{"/nodes/pve2":{"Sys.Audit":1}}"#, true),
            (r#"{"/nodes/pve1":{"Sys.Audit":1},"/":{"VM.Audit":1}}"#, false),
        ] {
            assert_eq!(may_hear(&permissions(json), "pve2"), expected, "{json}");
        }
        assert!(missing(&permissions("{}")).unwrap().contains("-token 'USER@REALM!NAME'"));
    }
}
