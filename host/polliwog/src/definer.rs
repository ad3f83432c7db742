//! The definitions of a fleet's deployments at its operator, made through the API or by Kubernetes.

use crate::fleet_plugins::offered;
use broker::Operator;
use engine::{Clock, Reconfigurer};
use fleet::names::{RULE, is_name};
use fleet::read_deployment;
use fleet::wire::Deployment;
use model::CommandError;
use std::sync::Arc;

/// Makes, changes and deletes the deployments of this operator.
#[derive(Clone)]
pub(crate) struct Definer {
    pub(crate) operator: Operator,
    reconfigurer: Arc<Reconfigurer>,
    clock: Clock,
}

impl Definer {
    pub(crate) fn new(operator: Operator, reconfigurer: Arc<Reconfigurer>, clock: Clock) -> Self {
        Self { operator, reconfigurer, clock }
    }

    /// Makes or changes a deployment from its definition as JSON; without one, deletes it.
    pub(crate) async fn define(&self, name: String, definition: Option<String>) -> Result<(), CommandError> {
        let operator = &self.operator;
        if !is_name(&name) {
            return Err(CommandError::Invalid(format!("{name:?} cannot be the name of a deployment: use {RULE}")));
        }
        // A version is larger than any before, also if the clock was set.
        let now = u64::try_from(self.clock.wall().as_millis()).unwrap_or_default();
        let version = now.max(operator.version(&name) + 1);
        let deployment = match definition {
            Some(text) => {
                let deployment = read_deployment(&text, version).map_err(CommandError::Invalid)?;
                config::check_assigned(&deployment.targets).map_err(CommandError::Invalid)?;
                deployment
            }
            None if operator.deployment(&name).is_none() => {
                return Err(CommandError::Missing(format!("there is no deployment {name:?}")));
            }
            None => Deployment::deleted(version),
        };
        // So that devices receive the deployment with its plugins.
        operator.offer(offered(&self.reconfigurer));
        self.reconfigurer.clone().deploy(name.clone(), kept(&deployment)).await?;
        operator.define(&name, deployment);
        Ok(())
    }
}

/// The text that this host keeps of a deployment; `None` if it is deleted.
pub(crate) fn kept(deployment: &Deployment) -> Option<String> {
    (!deployment.is_deleted()).then(|| fleet::stored(deployment))
}
