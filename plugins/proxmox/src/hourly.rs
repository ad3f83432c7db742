//! What is alike on all three products and changes so slowly that it is asked for once an hour.

use crate::{Answer, CertificateLimits, Look, Trouble, certificates, rhythm, subscription};
use polliwog_sdk::Dependency;
use std::time::Duration;

const RHYTHM: &str = "hourly";
const PERIOD: Duration = Duration::from_secs(60 * 60);
/// Where something could not be read it is looked again sooner.
const AGAIN: Duration = Duration::from_secs(5 * 60);

/// What differs from product to product.
pub struct Hourly<'a> {
    /// The nodes that answer.
    pub nodes: &'a [String],
    /// How names are made: `certificate/pve1`, or `certificate` where there is one node only.
    pub by_node: bool,
    /// What kinds begin with: `pve`.
    pub kind: &'a str,
    /// How a certificate is renewed there.
    pub renew: &'a str,
    /// When it is to be.
    pub certificates: &'a CertificateLimits,
    /// Whether subscriptions are looked at.
    pub subscription: bool,
}

/// Reports certificates, and subscriptions where they are wanted.
pub fn hourly<S>(look: &mut Look<S>, what: &Hourly<'_>) {
    let sorts: &[&str] = if what.subscription { &["certificate", "subscription"] } else { &["certificate"] };
    if !rhythm::is_due(RHYTHM) {
        for sort in sorts {
            look.report.keep(if what.by_node { format!("{sort}/") } else { (*sort).to_owned() });
        }
        return;
    }
    let mut whole = true;
    for sort in sorts {
        let path = |node: &String| match *sort {
            "certificate" => format!("/nodes/{node}/certificates/info"),
            _ => format!("/nodes/{node}/subscription"),
        };
        let answers = look.api.ask_all(what.nodes.iter().map(path).collect());
        for (node, answer) in what.nodes.iter().zip(answers) {
            let name = if what.by_node { format!("{sort}/{node}") } else { (*sort).to_owned() };
            let dependency = one(look, what, (sort, name.clone()), answer);
            match look.part((&name, &[]), dependency) {
                Some(dependency) => {
                    let parent = what.by_node.then(|| format!("node/{node}"));
                    look.add(Dependency { parent, ..dependency });
                }
                None => whole = false,
            }
        }
    }
    rhythm::looked(RHYTHM, if whole { PERIOD } else { AGAIN });
}

fn one<S>(
    look: &mut Look<S>,
    what: &Hourly<'_>,
    (sort, name): (&str, String),
    answer: Answer,
) -> Result<Dependency, Trouble> {
    let kind = format!("{}-{sort}", what.kind);
    match sort {
        "certificate" => certificates(look, (name, &kind, what.renew), what.certificates, answer),
        _ => subscription(look, (name, &kind), answer),
    }
}
