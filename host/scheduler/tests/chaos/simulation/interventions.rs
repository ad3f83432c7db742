//! Interventions in a running estate: changes of targets and settings, commands, sleep, restarts.

use super::draws::settings;
use super::naive::{Expected, Mirror, Plugin};
use super::{Checked, RESTART_SLACK, Run};
use model::{Ask, Kind, Moment, Place, Schedule, TargetId};
use rand::Rng;
use scheduler::{Change, Input, Scheduler, Settings, TargetSpec};
use std::time::Duration;

impl Run {
    fn any_target(&mut self) -> Option<TargetId> {
        let at = self.rng.random_range(0..self.mirrors.len().max(1));
        self.mirrors.keys().nth(at).cloned()
    }

    /// Makes one random intervention.
    pub(super) fn intervene(&mut self) -> Checked {
        self.summary.interventions += 1;
        match self.rng.random_range(0..14) {
            0 | 1 => {
                let host = self.rng.random_range(0..self.down.len());
                self.down[host] = !self.down[host];
                Ok(())
            }
            2 => self.add(),
            3 => self.remove(),
            4 | 5 => self.change(),
            6 => self.change_settings(),
            7 => self.restart(),
            8 => {
                // The machine sleeps, for up to an hour or up to a month.
                let slept = [3600.0, 30.0 * 86_400.0][self.rng.random_range(0..2)] * self.rng.random::<f64>();
                self.now = self.now.after(Duration::from_secs_f64(slept));
                self.awake_since = self.now;
                self.anything_may_be_due();
                self.give(Input::Tick)
            }
            12 | 13 => self.hold_back(),
            9 => {
                // In half of the cases another version replaces the plugin.
                self.served = !self.served || self.rng.random_bool(0.5);
                self.anything_may_be_due();
                self.plugin = Plugin::default();
                self.outdated = self.running.keys().cloned().collect();
                let kind = Kind::new("simulated").expect("a word is a valid kind");
                self.give(Input::KindServed(kind, self.served))
            }
            _ => self.ask(),
        }
    }

    /// Changes the number of a target's unwritten results.
    fn hold_back(&mut self) -> Checked {
        let Some(target) = self.any_target() else { return Ok(()) };
        let count = self.rng.random_range(0..8);
        if let Some(mirror) = self.mirrors.get_mut(&target) {
            mirror.unwritten(count);
        }
        self.give(Input::Unwritten(target, count))
    }

    /// Accepts any due time, because something other than an outcome may have changed it.
    pub(super) fn anything_may_be_due(&mut self) {
        self.spread_since = self.now;
        self.mirrors.values_mut().for_each(|mirror| mirror.expect(Expected::Anything));
    }

    fn add(&mut self) -> Checked {
        let number = self.rng.random_range(0..500);
        let spec = self.spec(number);
        let id = spec.id.clone();
        let mut mirror = Mirror::new(spec.clone());
        if self.running.contains_key(&id) {
            mirror.void();
        }
        if let Some(before) = self.mirrors.get(&id) {
            // A target that is added again is a change: it is no longer a probe.
            self.plugin.forget(&id);
            mirror.succeed(before);
        }
        self.mirrors.insert(id, mirror);
        self.give(Input::Added(spec))
    }

    fn remove(&mut self) -> Checked {
        let Some(target) = self.any_target() else { return Ok(()) };
        self.mirrors.remove(&target);
        self.places.remove(&target);
        self.plugin.forget(&target);
        self.disk.remove(&target);
        self.dirty.remove(&target);
        self.give(Input::Removed(target))
    }

    fn change(&mut self) -> Checked {
        let Some(target) = self.any_target() else { return Ok(()) };
        let change =
            [Change::Reset, Change::PollNow, Change::Requeue, Change::Nothing][self.rng.random_range(0..4_usize)];
        let number = target.as_str()[1..].parse().unwrap_or_default();
        let new = self.spec(number);
        let mirror = self.mirrors.get_mut(&target).expect("the target was found among them");
        let spec = match change {
            Change::Reset => new,
            // Host and origin stay the same, because a changed URL requires a reset.
            _ => TargetSpec { host: mirror.spec.host.clone(), origin: mirror.spec.origin.clone(), ..new },
        };
        mirror.change(spec.clone(), change);
        self.plugin.forget(&target);
        self.give(Input::Changed(spec, change))
    }

    fn ask(&mut self) -> Checked {
        let asks = [Ask::PollNow, Ask::Retry, Ask::ResetBreaker, Ask::Enable, Ask::Disable];
        let ask = asks[self.rng.random_range(0..asks.len())];
        self.ask_for(ask)
    }

    fn ask_for(&mut self, ask: Ask) -> Checked {
        let Some(target) = self.any_target() else { return Ok(()) };
        self.mirrors.get_mut(&target).expect("the target was found among them").ask(ask);
        match ask {
            // A poll in flight started before the command.
            Ask::PollNow | Ask::Retry | Ask::ResetBreaker
                if self.running.contains_key(&target) || !self.mirrors[&target].spec.enabled => {}
            Ask::PollNow | Ask::Retry | Ask::ResetBreaker => self.plugin.ask(&target),
            Ask::Disable => self.plugin.forget(&target),
            Ask::Enable => {}
        }
        self.give(Input::Asked(target, ask))
    }

    fn change_settings(&mut self) -> Checked {
        let new = settings(&mut self.rng);
        // Lower caps do not end polls in flight, which the checks would report; so caps are only raised.
        let caps = Settings {
            max_in_flight: new.max_in_flight.max(self.settings.max_in_flight),
            max_per_host: new.max_per_host.max(self.settings.max_per_host),
            ..new
        };
        self.set(caps)
    }

    fn set(&mut self, settings: Settings) -> Checked {
        self.settings = settings.clone();
        self.anything_may_be_due();
        self.rate_since = self.now;
        self.starts.clear();
        for mirror in self.mirrors.values_mut() {
            mirror.profile(settings.profile);
        }
        self.give(Input::Settings(settings))
    }

    /// Ends the host, gracefully or not, and starts it again with the saved schedules.
    fn restart(&mut self) -> Checked {
        // In half of the cases polls and probes are in flight.
        if self.rng.random_bool(0.5) {
            for _ in 0..4 {
                self.ask_for(Ask::PollNow)?;
            }
        }
        let (ended, graceful) = (self.now, self.rng.random_bool(0.5));
        if graceful {
            // Polls that are still in flight at the end of the shutdown are saved as well.
            self.dirty.extend(self.running.keys().cloned());
            self.flush();
        }
        let specs: Vec<(TargetSpec, Option<Schedule<Moment>>)> = (self.mirrors.values())
            .map(|mirror| (mirror.spec.clone(), self.disk.get(&mirror.spec.id).cloned()))
            .collect();
        let probing: Vec<(TargetId, Moment)> = (self.mirrors.values())
            .filter_map(|mirror| Some((mirror.spec.id.clone(), ended.after(mirror.lost_probe()?))))
            .collect();
        let waits = |id: &TargetId| {
            let status = self.scheduler.status(id).filter(|status| status.place == Place::Queued);
            Some((id.clone(), status?.schedule.due))
        };
        let promised: Vec<(TargetId, Moment)> = self.mirrors.keys().filter_map(waits).collect();
        self.dirty.clear();
        self.plugin = Plugin::default();
        self.outdated.clear();
        self.scheduler = Scheduler::new(self.settings.clone(), self.rng.random());
        self.places.clear();
        self.in_flight.clear();
        self.running.clear();
        self.starts.clear();
        let longest = if self.rng.random_bool(0.5) { 10 } else { 4000 };
        self.now = self.now.after(Duration::from_secs(self.rng.random_range(0..longest)));
        (self.rate_since, self.awake_since) = (self.now, self.now);
        for mirror in self.mirrors.values_mut() {
            mirror.lose_poll();
            mirror.unwritten(0);
            mirror.expect(Expected::Anything);
        }
        let kind = Kind::new("simulated").expect("a word is a valid kind");
        self.scheduler.apply(Input::KindServed(kind, self.served), self.now);
        self.give(Input::Started(specs))?;
        for mirror in self.mirrors.values() {
            let id = &mirror.spec.id;
            let status = self.scheduler.status(id).ok_or_else(|| format!("{id} did not survive a restart"))?;
            mirror.same_streaks(&status.schedule).map_err(|why| format!("{id} after a restart: {why}"))?;
        }
        let due = |id: &TargetId| self.scheduler.status(id).map(|status| status.schedule.due);
        // A killed host has saved the start of the probe, but not its progress.
        let slack = RESTART_SLACK + self.longest_poll;
        // A dead letter is polled once at each start, because its cause may have been corrected.
        let is_dead = |id: &TargetId| self.scheduler.status(id).is_some_and(|status| status.schedule.dead.is_some());
        let early = probing.into_iter().filter(|(id, until)| *until > self.now.after(slack) && !is_dead(id));
        for (id, until) in early {
            if due(&id).is_some_and(|due| due < until.before(slack)) {
                return Err(format!("{id} was being probed when the host ended, but is probed again before its time"));
            }
        }
        for (id, promise) in promised.into_iter().filter(|_| graceful) {
            // Overdue targets are spread, and so are targets whose due time is too far away.
            let (kept, most) = (due(&id), self.now.after(Duration::from_secs(60)));
            if promise > self.now && kept != Some(promise) && kept.is_none_or(|due| due > most) {
                return Err(format!("{id} was due at {promise:?}, and is now due at {kept:?}"));
            }
            // The longest interval may have been shortened since the due time was computed.
            let longest = self.scheduler.status(&id).map(|status| status.longest).unwrap_or_default();
            let far = promise > self.now.after(longest);
            if promise > most && kept != Some(promise) && !far && !is_dead(&id) {
                return Err(format!("{id} was due at {promise:?}, but is polled earlier, at {kept:?}"));
            }
        }
        self.check_all()
    }
}
