//! Which channels do not deliver, and why.

use super::channel::Channel;
use super::{Outbox, TROUBLE};
use crate::message::Message;
use model::Class;
use notify::Trouble;

impl Outbox {
    pub(super) fn succeeded(&self, name: &str, refused: Option<String>) {
        let is_whole = refused.is_none();
        if let Some(why) = &refused {
            tracing::warn!("channel {name} delivers in part: {why}");
        }
        let wall = self.0.parts.clock.wall();
        let had_problem = {
            let mut state = self.state();
            let Some(channel) = state.channels.get_mut(name) else { return };
            channel.succeeded(wall, refused);
            state.troubles.iter().any(|trouble| trouble.name == name)
        };
        if had_problem && is_whole {
            tracing::info!("channel {name} delivers again");
        }
        if had_problem || !is_whole {
            self.report_troubles();
        }
    }

    /// Counts a failed attempt. Operators are notified at once of one that time alone does not mend.
    pub(super) fn failed(&self, name: &str, why: &str, is_permanent: bool) {
        let is_trouble = {
            let mut state = self.state();
            let Some(channel) = state.channels.get_mut(name) else { return };
            channel.failed(why);
            is_permanent || channel.failing == TROUBLE
        };
        if is_trouble {
            if let Some(channel) = self.state().channels.get_mut(name) {
                channel.is_in_trouble = true;
            }
            self.report_troubles();
        }
    }

    /// Reports to the driver which channels do not deliver.
    pub(super) fn report_troubles(&self) {
        let troubles: Vec<Trouble> = {
            let mut state = self.state();
            let troubled = state.channels.iter().filter(|(_, channel)| channel.is_in_trouble);
            let trouble = |(name, channel): (&String, &Channel)| Trouble {
                name: name.clone(),
                title: format!("channel {name} does not deliver"),
                message: channel.problem.clone(),
            };
            let found: Vec<Trouble> = troubled.map(trouble).collect();
            state.troubles.clone_from(&found);
            found
        };
        self.report(Message::Troubles(Class::Channel, troubles));
    }
}
