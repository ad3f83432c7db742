//! Which guests are started with their node. Only the configuration of a guest contains this, which costs a request for
//! each guest.
//!
//! The check is therefore an option, for expected guests and for samples, and a poll reads only a few configurations:
//! those that were read longest ago.

use crate::context::PollContext;
use crate::memory::Onboot;
use crate::nodes::{Nodes, answers};
use crate::resources::Guest;
use crate::samples;
use polliwog_sdk::lenient::{Field, Flag};
use proxmox::Expiring;
use proxmox::SortedMap;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// The number of configurations that are read in one poll.
const EACH_POLL: usize = 20;
/// How long a configuration is valid. Seconds.
const FRESH: f64 = 600.0;
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    onboot: Field<Flag>,
}

/// The known setting of each guest, by ID.
type Known = SortedMap<u64, Onboot>;

/// Adds samples, and returns the guests that are expected to run because they are started with their node. Both depend
/// on the settings, and on what has been read so far.
pub(crate) fn report(context: &mut PollContext, guests: &[Guest<'_>], nodes: &Nodes) -> BTreeSet<u64> {
    let expects = context.settings.guests.expected_by_onboot;
    if !expects && !context.settings.samples_onboot {
        return BTreeSet::new();
    }
    let known = ask(context, guests, nodes);
    if context.settings.samples || context.settings.samples_onboot {
        samples::onboot(context, guests.iter().filter_map(|guest| Some((guest, known.get(&guest.id)?.onboot?))));
    }
    known.into_iter().filter(|(_, known)| expects && known.onboot == Some(true)).map(|(id, _)| id).collect()
}

/// Reads the next few configurations. Returns what is known of all guests.
fn ask(context: &mut PollContext, guests: &[Guest<'_>], nodes: &Nodes) -> Known {
    let now = context.milliseconds();
    let known = context.memory.plugin.onboot.take();
    let mut known: Known = known.as_ref().and_then(|known| known.get(now)).cloned().unwrap_or_default();
    let ids: BTreeSet<u64> = guests.iter().map(|guest| guest.id).collect();
    known.retain(|id, _| ids.contains(id));
    let asked = oldest(context, guests, nodes, &known);
    let path = |guest: &&Guest<'_>| format!("/nodes/{}/{}/{}/config", guest.node, guest.kind(), guest.id);
    let replies = context.api.ask_all(asked.iter().map(path).collect());
    for (guest, answer) in asked.iter().zip(replies) {
        let config = answer.read::<Config>();
        crate::nodes::record_answer(context, &guest.node, &config);
        let onboot = match config.map(|config| config.onboot) {
            Ok(Field::Absent) => Some(false),
            Ok(onboot) => context.diagnostics.flag(&onboot, || format!("onboot of {}", guest.shown())),
            Err(error) => {
                context.diagnostics.add(|| format!("onboot of {}: {}", guest.shown(), error.message));
                None
            }
        };
        // If the configuration could not be read, the last value is kept, and other guests come first.
        let before = known.get(&guest.id).and_then(|known| known.onboot);
        known.insert(guest.id, Onboot { onboot: onboot.or(before), at: context.seconds() });
    }
    context.memory.plugin.onboot = Some(Expiring::new(known.clone(), now, REMEMBERED));
    known
}

fn oldest<'a, 'b>(context: &PollContext, guests: &'a [Guest<'b>], nodes: &Nodes, known: &Known) -> Vec<&'a Guest<'b>> {
    let now = context.seconds();
    let asked_at = |guest: &Guest<'_>| known.get(&guest.id).map_or(f64::NEG_INFINITY, |known| known.at);
    let there = |guest: &&Guest<'_>| answers(context, nodes, &guest.node);
    // A time in the future was remembered before the clock was set back.
    let mut old: Vec<&Guest<'_>> =
        guests.iter().filter(there).filter(|guest| !(0.0..FRESH).contains(&(now - asked_at(guest)))).collect();
    old.sort_by(|one, other| asked_at(one).total_cmp(&asked_at(other)).then(one.id.cmp(&other.id)));
    old.truncate(EACH_POLL);
    old
}
