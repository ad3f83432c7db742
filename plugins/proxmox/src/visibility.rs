//! Which parts could be checked at the last poll, so that those that become readable again are checked immediately.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Names, and prefixes that end in `/`, of parts that could not be checked.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Visibility {
    /// Parts that were unreadable at the last poll.
    lost: Vec<String>,
    /// Parts that were unreadable two polls ago and readable at the last one.
    pub back: Vec<String>,
}

impl Visibility {
    /// The visibility after a poll at which these parts were unreadable.
    pub(crate) fn after<'a>(&self, lost: impl Iterator<Item = &'a String>) -> Self {
        let lost: Vec<String> = lost.cloned().collect();
        let still: BTreeSet<&str> = lost.iter().map(String::as_str).collect();
        let back = self.lost.iter().filter(|name| !still.contains(name.as_str())).cloned().collect();
        Self { lost, back }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_back_for_one_poll() {
        let mut visibility = Visibility::default();
        let mut poll = |lost: &[&str]| {
            let lost: Vec<String> = lost.iter().map(|name| (*name).to_owned()).collect();
            visibility = visibility.after(lost.iter());
            visibility.back.clone()
        };
        assert!(poll(&["a", "b"]).is_empty());
        assert_eq!(poll(&["b"]), ["a"]);
        assert_eq!(poll(&[]), ["b"]);
        assert!(poll(&[]).is_empty());
    }
}
