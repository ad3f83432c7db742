//! Privileges. Proxmox hides what a token may not see and answers with a shorter list, so an empty list can mean
//! either.

use crate::context::PollContext;
use crate::nodes::{Nodes, State};
use crate::resources::Resources;
use polliwog_sdk::lenient::{Field, Flag};
use proxmox::SortedMap;
use proxmox::{Product, list};
use std::collections::BTreeSet;

/// The privileges that are needed, what each makes visible, the path at or below which it must be held, and the
/// dependencies that are hidden without it. The role PVEAuditor has them all.
const NEEDED: [(&str, &str, &str, &[&str]); 3] = [
    ("Sys.Audit", "nodes", "/nodes", &[]),
    ("VM.Audit", "guests", "/vms", &["guest/", "replication/", "backup/guest/"]),
    ("Datastore.Audit", "storages", "/storage", &["storage/"]),
];

/// Privileges by path, and whether each is propagated. A privilege on `/` that is not propagated makes none of this
/// visible. A propagated one is listed for the paths below as well (pve-access-control: PVE/RPCEnvironment.pm,
/// get_effective_permissions).
type Permissions = SortedMap<String, SortedMap<String, Field<Flag>>>;

/// Warns in the dependency `api` if something is hidden because a privilege is missing. Returns the nodes whose status
/// the token may not read.
pub(crate) fn report(context: &mut PollContext, resources: &Resources<'_>, nodes: &Nodes) -> BTreeSet<String> {
    let silent = nodes.iter().filter(|(_, node)| node.state == State::Online && !node.itself.speaks);
    let mut silent: BTreeSet<String> = silent.map(|(name, _)| name.clone()).collect();
    if silent.is_empty() && !resources.guests.is_empty() && !resources.storages.is_empty() {
        return silent;
    }
    let [answer] = context.api.ask(["/access/permissions"]);
    let why = match answer.read::<Permissions>() {
        Ok(permissions) => {
            silent.retain(|node| !may_hear(&permissions, node));
            for (privilege, _, path, members) in NEEDED {
                for members in members.iter().filter(|_| !is_held(&permissions, privilege, path)) {
                    context
                        .mark_unknown(*members, format!("the token lacks {privilege}, so it is hidden: see \"api\""));
                }
            }
            missing(&permissions).or_else(|| unreadable_nodes(&silent))
        }
        // Without an answer it is not known whether the lists are complete.
        Err(error) => Some(format!("it is not known whether the token may see everything: {}", error.message)),
    };
    if let Some(why) = why {
        context.warn_of_api(&why);
    }
    silent
}

fn may_hear(permissions: &Permissions, node: &str) -> bool {
    let held = |path: &str| permissions.get(path).and_then(|held| held.get(NEEDED[0].0));
    let handed_down = held("/nodes").is_some_and(|down| down.get().is_none_or(|Flag(down)| *down));
    handed_down || held(&format!("/nodes/{node}")).is_some()
}

fn is_held(permissions: &Permissions, privilege: &str, path: &str) -> bool {
    let below = format!("{path}/");
    let here = |(found, _): &(&String, _)| *found == path || found.starts_with(&below);
    permissions.iter().filter(here).any(|(_, held)| held.contains_key(privilege))
}

fn unreadable_nodes(nodes: &BTreeSet<String>) -> Option<String> {
    let names: Vec<String> = nodes.iter().cloned().collect();
    let lacking = || format!("the token lacks {} on {}: {}", NEEDED[0].0, list(&names), Product::Ve.grant_rights());
    (!names.is_empty()).then(lacking)
}

/// Returns a message about the privileges that are held nowhere; `None` if there are no such privileges.
fn missing(permissions: &Permissions) -> Option<String> {
    let lacking = NEEDED.into_iter().filter(|(privilege, _, path, _)| !is_held(permissions, privilege, path));
    let (privileges, things): (Vec<&str>, Vec<&str>) =
        lacking.map(|(privilege, things, ..)| (privilege, things)).unzip();
    (!privileges.is_empty()).then(|| {
        format!(
            "the token lacks {}, or has it on / alone without \"propagate\", so {} are hidden from it: {}",
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
    fn missing_privileges_are_named() {
        let permissions = |json: &str| serde_json::from_str::<Permissions>(json).unwrap();
        let all =
            permissions(r#"{"/nodes":{"Sys.Audit":1},"/vms/100":{"VM.Audit":1},"/storage":{"Datastore.Audit":"1"}}"#);
        assert_eq!(missing(&all), None);
        let alone = missing(&permissions(r#"{"/":{"Sys.Audit":0,"VM.Audit":0,"Datastore.Audit":0}}"#)).unwrap();
        assert!(alone.contains("without \"propagate\", so nodes, guests, storages are hidden"), "{alone}");
        let some = missing(&permissions(r#"{"/vms":{"VM.Audit":1}}"#)).unwrap();
        assert!(some.starts_with("the token lacks Sys.Audit, Datastore.Audit, or has it on / alone"), "{some}");
        for (json, expected) in [
            (r#"{"/":{"Sys.Audit":1},"/nodes":{"Sys.Audit":1}}"#, true),
            (r#"{"/":{"Sys.Audit":0}}"#, false),
            (r#"{"/nodes":{"Sys.Audit":0}}"#, false),
            (r#"{"/nodes/pve2":{"Sys.Audit":1}}"#, true),
            (r#"{"/nodes/pve1":{"Sys.Audit":1},"/":{"VM.Audit":1}}"#, false),
        ] {
            assert_eq!(may_hear(&permissions(json), "pve2"), expected, "{json}");
        }
        assert!(missing(&permissions("{}")).unwrap().contains("-token 'USER@REALM!NAME'"));
    }
}
