//! The usage of a kind's polls since the start of the host, over all versions of its plugin.

use model::{FailureCategory, Outcome, PluginUsage};
use sandbox::Done;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The maximum number of counted secret names.
const SECRETS: usize = 64;

/// The usage of one kind.
#[derive(Debug, Default)]
pub struct UsageCounter(Mutex<PluginUsage>);

impl UsageCounter {
    /// Counts a poll.
    pub fn note(&self, done: &Done) {
        if done.outcome == Outcome::Skipped {
            // The poll did not run.
            return;
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let usage = &done.usage;
        all.polls += 1;
        all.cpu += usage.cpu;
        all.wall += usage.wall;
        all.peak_memory = all.peak_memory.max(usage.memory as u64);
        all.requests += u64::from(usage.requests);
        all.bytes += usage.bytes;
        all.log_lines += u64::from(usage.log_lines);
        for name in &usage.secrets {
            add(&mut all.secrets, name, SECRETS);
        }
        if let Outcome::Failure(failure) = &done.outcome
            && failure.category == FailureCategory::Plugin
        {
            all.faults += 1;
            // These are codes of the host, of which there are about a dozen.
            add(&mut all.faults_by_reason, &failure.code, usize::MAX);
        }
    }

    /// Adds CPU time that the host spent on a poll after its plugin had ended.
    pub fn charge(&self, cpu: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).cpu += cpu;
    }

    /// Returns the usage so far.
    pub fn usage(&self) -> PluginUsage {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn add(counts: &mut BTreeMap<String, u64>, name: &str, most: usize) {
    if let Some(count) = counts.get_mut(name) {
        *count += 1;
    } else if counts.len() < most {
        counts.insert(name.to_owned(), 1);
    }
}
