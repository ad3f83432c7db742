//! What changes so slowly that each node is asked for it once an hour.

use crate::{Answer, Look, Trouble};
use polliwog_sdk::Dependency;
use std::time::Duration;

const PERIOD: Duration = Duration::from_secs(60 * 60);
/// Where something could not be read it is looked again sooner.
const AGAIN: Duration = Duration::from_secs(5 * 60);

/// One such thing.
pub struct Fact<S> {
    /// What its dependency is called: `certificate/pve1`, or `certificate` where there is one node only.
    pub sort: &'static str,
    /// Where it is, behind `/nodes/N`.
    pub path: &'static str,
    /// Whether it takes long by itself.
    pub slow: bool,
    /// What an answer means for the dependency of this name.
    pub read: fn(&mut Look<S>, String, Answer) -> Result<Dependency, Trouble>,
}

/// Reports each of these facts of each of these nodes; `by_node` says whether their names are in those of the dependencies.
/// Gives the nodes that a request did not get through to, each with why; they are asked nothing more.
pub fn hourly<S>(look: &mut Look<S>, nodes: &[String], by_node: bool, facts: &[Fact<S>]) -> Vec<(String, String)> {
    let mut unreachable: Vec<(String, String)> = Vec::new();
    for Fact { sort, path, slow, read } in facts {
        let key = format!("hourly/{sort}");
        if nodes.is_empty() || !look.is_due(&key) {
            look.report.keep(if by_node { format!("{sort}/") } else { (*sort).to_owned() });
            continue;
        }
        let named = |node: &str| if by_node { format!("{sort}/{node}") } else { (*sort).to_owned() };
        let (spared, asked): (Vec<&String>, Vec<&String>) =
            nodes.iter().partition(|node| unreachable.iter().any(|(known, _)| known == *node));
        spared.iter().for_each(|node| look.report.keep(named(node)));
        let mut whole = spared.is_empty();
        let api = if *slow { look.api.patient() } else { look.api.clone() };
        let answers = api.ask_all(asked.iter().map(|node| format!("/nodes/{node}{path}")).collect());
        for (node, answer) in asked.into_iter().zip(answers) {
            let name = named(node);
            let dependency = read(look, name.clone(), answer);
            if let Err(trouble) = &dependency
                && trouble.code == "node_unreachable"
            {
                unreachable.push((node.clone(), trouble.sentence.clone()));
            }
            match look.detail((&name, &[]), dependency) {
                Some(dependency) => {
                    let parent = by_node.then(|| format!("node/{node}"));
                    look.add(Dependency { parent, ..dependency });
                }
                None => whole = false,
            }
        }
        look.looked(&key, if whole { PERIOD } else { AGAIN });
    }
    unreachable
}
