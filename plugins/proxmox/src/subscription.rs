//! The subscription of a node. Most nodes have none, so a setting turns the check on.

use crate::{Answer, Error, PluginMemory, PollContext, evaluated};
use polliwog_sdk::lenient::{Field, Text};
use polliwog_sdk::{Dependency, Status};
use serde::Deserialize;

/// `/nodes/N/subscription`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Subscription {
    status: Field<Text>,
    message: Field<Text>,
    nextduedate: Field<Text>,
    productname: Field<Text>,
}

/// Evaluates whether the subscription is active.
pub fn subscription<S, M: PluginMemory>(
    context: &mut PollContext<S, M>,
    name: String,
    kind: &str,
    answer: Answer,
) -> Result<Dependency, Error> {
    let found: Subscription = answer.read()?;
    let word = |field: &Field<Text>| field.get().map(|Text(text)| text.to_lowercase());
    let said = match found.message.get() {
        Some(Text(message)) => format!(": {}", message.trim()),
        None => String::new(),
    };
    let verdict = match word(&found.status).as_deref() {
        Some("active") => (Status::Ok, None),
        Some(status @ ("new" | "notfound")) => (
            Status::Warning,
            Some(format!(
                "there is no subscription \
                                                                               ({status}{said})"
            )),
        ),
        Some(status @ ("invalid" | "expired" | "suspended")) => {
            (Status::Critical, Some(format!("it is {status}{said}")))
        }
        Some(status) => (Status::Unknown, Some(format!("it is {status:?}, which this plugin does not know"))),
        None => {
            if let Field::Odd(odd) = &found.status {
                context.diagnostics.add(|| format!("status of {name} is {odd}, which is not a text: ignored"));
            }
            (Status::Unknown, Some("the node does not report its subscription".to_owned()))
        }
    };
    let dependency = evaluated(name, kind, verdict);
    Ok(match (found.productname.get(), found.nextduedate.get()) {
        (Some(Text(product)), Some(Text(due))) => dependency.with_description(format!("{product}, due on {due}")),
        (Some(Text(product)), None) => dependency.with_description(product),
        _ => dependency,
    })
}
