//! Detects that the host itself cannot reach the network: most hosts that were polled within a minute stopped
//! answering.

use model::{Class, Moment, Subject};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// The name of the alert that this host cannot reach the network.
pub const NETWORK: &str = "network";

/// The subject of that alert.
pub(crate) fn network() -> Subject {
    Subject::Other(Class::Host, NETWORK.into())
}

/// The period in which hosts must fail together.
const PERIOD: Duration = Duration::from_secs(60);
/// The fewest hosts from which the network is judged.
const FEWEST: usize = 10;
/// The share of these hosts that must fail, in percent.
const SHARE: usize = 80;
/// The period between two judgements while hosts fail.
const PAUSE: Duration = Duration::from_secs(1);

/// The last answer of each host.
#[derive(Debug, Default)]
pub(crate) struct Blind {
    hosts: HashMap<String, Seen>,
    judged: Option<Moment>,
    /// The hosts that failed together and have not answered since, and their number at the beginning; `None` while the
    /// network works.
    silent: Option<(BTreeSet<String>, usize)>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Moment,
    failing_since: Option<Moment>,
}

impl Blind {
    /// The state after a restart during which the network was lost: no host has answered since.
    pub(crate) fn active(hosts: BTreeSet<String>) -> Self {
        let all = hosts.len();
        Self { silent: Some((hosts, all)), ..Self::default() }
    }

    /// Records whether a host answered. Returns the number of silent hosts and of all hosts when the network is lost,
    /// and `Some(None)` when it works again.
    pub(crate) fn observe(&mut self, host: &str, is_answer: bool, now: Moment) -> Option<Option<(usize, usize)>> {
        let seen = Seen { at: now, failing_since: (!is_answer).then_some(now) };
        match self.hosts.get_mut(host) {
            Some(held) => {
                *held = Seen { failing_since: seen.failing_since.map(|at| held.failing_since.unwrap_or(at)), ..seen }
            }
            None => drop(self.hosts.insert(host.to_owned(), seen)),
        }
        if let Some((silent, all)) = &mut self.silent {
            if is_answer {
                silent.remove(host);
            }
            if silent.len() * 100 >= *all * SHARE {
                return None;
            }
            self.silent = None;
            return Some(None);
        }
        if is_answer || self.judged.is_some_and(|judged| now.since(judged) < PAUSE) {
            return None;
        }
        self.judged = Some(now);
        self.judge(now).map(Some)
    }

    /// Forgets the hosts that no target has any more. Returns true if nothing is left to wait for.
    pub(crate) fn retain(&mut self, is_polled: impl Fn(&str) -> bool) -> bool {
        self.hosts.retain(|host, _| is_polled(host));
        let Some((silent, all)) = &mut self.silent else { return false };
        let before = silent.len();
        silent.retain(|host| is_polled(host));
        *all -= before - silent.len();
        let is_over = silent.is_empty();
        if is_over {
            self.silent = None;
        }
        is_over
    }

    /// Whether the network is lost.
    pub(crate) const fn is_active(&self) -> bool {
        self.silent.is_some()
    }

    /// Hosts that failed before the period say nothing about the network.
    fn judge(&mut self, now: Moment) -> Option<(usize, usize)> {
        let recent = |at: Moment| now.since(at) <= PERIOD;
        let counted = (self.hosts.iter()).filter(|(_, seen)| recent(seen.at) && seen.failing_since.is_none_or(recent));
        let (mut all, mut silent) = (0, BTreeSet::new());
        for (host, seen) in counted {
            all += 1;
            if seen.failing_since.is_some() {
                silent.insert(host.clone());
            }
        }
        if all < FEWEST || silent.len() * 100 < all * SHARE {
            return None;
        }
        let lost = (silent.len(), all);
        self.silent = Some((silent, lost.0));
        Some(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Moment {
        Moment::START.after(Duration::from_secs(second))
    }

    /// Each step: second, range of hosts, whether they answer. Returns what was found, with its second.
    fn run(steps: &[(u64, std::ops::Range<u32>, bool)]) -> Vec<(u64, Option<(usize, usize)>)> {
        let mut blind = Blind::default();
        let mut found = Vec::new();
        for (second, hosts, is_answer) in steps {
            for host in hosts.clone() {
                found.extend(
                    blind.observe(&format!("h{host}"), *is_answer, at(*second)).map(|change| (*second, change)),
                );
            }
        }
        found
    }

    #[test]
    fn the_network_is_lost_when_most_hosts_fail_together() {
        let up = (0, 0..20, true);
        assert_eq!(run(&[up.clone(), (30, 0..15, false), (31, 15..16, false)]), [(31, Some((16, 20)))]);
        assert_eq!(run(&[up.clone(), (30, 0..14, false), (31, 14..15, false)]), []);
        // Too few hosts.
        assert_eq!(run(&[(0, 0..9, true), (30, 0..8, false), (31, 8..9, false)]), []);
        // Hosts that failed long before are not counted: 3 of 5 is less than the fewest.
        assert_eq!(run(&[(0, 0..15, false), (100, 0..15, false), (101, 15..20, true), (102, 15..18, false)]), []);
        // It works again when more than a fifth of the silent hosts answered.
        let lost = [up, (30, 0..15, false), (31, 15..20, false), (90, 0..3, true), (91, 3..4, true)];
        assert_eq!(run(&lost), [(31, Some((16, 20))), (91, None)]);
    }

    #[test]
    fn removed_hosts_are_not_waited_for() {
        let mut blind = Blind::default();
        for host in 0..12 {
            blind.observe(&format!("h{host}"), true, at(0));
        }
        for host in 0..12 {
            blind.observe(&format!("h{host}"), false, at(10 + host));
        }
        assert!(blind.is_active());
        assert!(!blind.retain(|host| host != "h0"));
        assert!(blind.retain(|_| false));
        assert!(!blind.is_active());
    }
}
