//! Rights. Proxmox hides what a token may not see and answers with a shorter list, so an empty one can mean either.

use crate::Look;
use crate::nodes::Nodes;
use crate::resources::Resources;
use polliwog_sdk::lenient::{Field, Flag};
use proxmox::Product;
use std::collections::BTreeMap;

/// What each privilege lets one see. Role PVEAuditor has them all.
const NEEDED: [(&str, &str); 3] = [("Sys.Audit", "nodes"), ("VM.Audit", "guests"), ("Datastore.Audit", "storages")];

/// Privileges by object, and whether each is handed down.
type Permissions = BTreeMap<String, BTreeMap<String, Field<Flag>>>;

/// Says so in the dependency `api` where something is not to be seen for want of rights, and whether nodes may be heard.
pub(crate) fn report(look: &mut Look, resources: &Resources, nodes: &Nodes) -> bool {
    let mute = !nodes.values().any(|node| node.itself.speaks);
    if !mute && !resources.guests.is_empty() && !resources.storages.is_empty() {
        return true;
    }
    let [answer] = look.api.ask(["/access/permissions"]);
    let why = match answer.read::<Permissions>() {
        Ok(permissions) => match missing(&permissions) {
            Some(missing) => missing,
            None => return true,
        },
        // Without an answer nobody can say that the lists are whole.
        Err(trouble) => format!("whether everything may be seen cannot be told: {}", trouble.sentence),
    };
    look.warn_of_api(&why);
    !mute
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
        assert!(missing(&permissions("{}")).unwrap().contains("-token 'USER@REALM!NAME'"));
    }
}
