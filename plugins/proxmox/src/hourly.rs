//! Checks of each node that run once an hour, because their results change slowly.

use crate::{Answer, Error, ErrorClass, PluginMemory, PollContext};
use polliwog_sdk::Dependency;
use std::time::Duration;

const PERIOD: Duration = Duration::from_secs(60 * 60);
/// A check that could not read everything runs again after this time.
const AGAIN: Duration = Duration::from_secs(5 * 60);

/// A check of each node.
pub struct Fact<S, M> {
    sort: &'static str,
    path: &'static str,
    slow: bool,
    samples_only: bool,
    read: Read<S, M>,
}

/// Evaluates an answer for the dependency of this name.
type Read<S, M> = fn(&mut PollContext<S, M>, String, Answer) -> Result<Dependency, Error>;

impl<S, M> Fact<S, M> {
    /// A check whose dependency is named `certificate/pve1`, or `certificate` if there is one node only. It requests
    /// `/nodes/N` followed by `path`.
    pub fn new(sort: &'static str, path: &'static str, read: Read<S, M>) -> Self {
        Self { sort, path, slow: false, samples_only: false, read }
    }

    /// Allows the request to take long.
    #[must_use]
    pub fn slow(self) -> Self {
        Self { slow: true, ..self }
    }

    /// The check only adds samples and has no dependency.
    #[must_use]
    pub fn samples_only(self) -> Self {
        Self { samples_only: true, ..self }
    }

    /// The name of the dependency; `None` if there is no dependency.
    pub fn name(&self, node: &str) -> Option<String> {
        (!self.samples_only).then(|| format!("{}/{node}", self.sort))
    }
}

/// Runs these checks for each of these nodes. Returns the nodes that could not be reached, with the reason. They are
/// not queried again in this poll.
pub fn hourly<S, M: PluginMemory>(
    context: &mut PollContext<S, M>,
    nodes: &[String],
    by_node: bool,
    facts: &[Fact<S, M>],
) -> Vec<(String, String)> {
    let mut unreachable: Vec<(String, String)> = Vec::new();
    for Fact { sort, path, slow, samples_only, read } in facts {
        let key = format!("hourly/{sort}");
        let keep = |context: &mut PollContext<S, M>, name: String| {
            if !samples_only {
                context.report.keep(name);
            }
        };
        if nodes.is_empty() || !context.is_due(&key) {
            keep(context, if by_node { format!("{sort}/") } else { (*sort).to_owned() });
            continue;
        }
        let named = |node: &str| if by_node { format!("{sort}/{node}") } else { (*sort).to_owned() };
        let (skipped, asked): (Vec<&String>, Vec<&String>) =
            nodes.iter().partition(|node| unreachable.iter().any(|(known, _)| known == *node));
        skipped.iter().for_each(|node| keep(context, named(node)));
        let mut whole = skipped.is_empty();
        let api = if *slow { context.api.patient() } else { context.api.clone() };
        let answers = api.ask_all(asked.iter().map(|node| format!("/nodes/{node}{path}")).collect());
        for (node, answer) in asked.into_iter().zip(answers) {
            let name = named(node);
            let dependency = read(context, name.clone(), answer);
            if let Err(error) = &dependency
                && error.class == ErrorClass::NodeUnreachable
            {
                unreachable.push((node.clone(), error.message.clone()));
            }
            if *samples_only {
                if let Err(error) = dependency {
                    context.diagnostics.add(|| format!("{name}: {}", error.message));
                    whole = false;
                }
                continue;
            }
            match context.detail((&name, &[]), dependency) {
                Some(dependency) => {
                    let runs_on = by_node.then(|| format!("node/{node}")).into_iter().collect();
                    context.add(Dependency { runs_on, ..dependency });
                }
                None => whole = false,
            }
        }
        context.checked(&key, if whole { PERIOD } else { AGAIN });
    }
    unreachable
}
