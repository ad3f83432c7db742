//! How a task ended.

use crate::count;
use polliwog_sdk::Status;

/// What a task's `status` and `endtime` say, on all three products.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It has not.
    Running,
    /// Well.
    Ok,
    /// Well, with so many warnings.
    Warnings(u32),
    /// Nobody knows: its node went down, or its log is gone.
    Unknown,
    /// Badly, and why.
    Failed(String),
}

impl Ended {
    /// Reads a task's status: missing while it runs, `OK`, `WARNINGS: 3`, `unexpected status`, or what went wrong.
    pub fn read(status: Option<&str>, has_end: bool) -> Self {
        match status.map(str::trim) {
            None | Some("") if has_end => Self::Unknown,
            None | Some("") => Self::Running,
            // As Proxmox VE fills it in itself, in one of its lists.
            Some(status) if status.eq_ignore_ascii_case("running") => Self::Running,
            Some("OK") => Self::Ok,
            Some("unexpected status" | "unknown" | "stopped: unknown") => Self::Unknown,
            Some(status) => match status.strip_prefix("WARNINGS:").map(|number| number.trim().parse()) {
                Some(Ok(number)) => Self::Warnings(number),
                _ => Self::Failed(status.to_owned()),
            },
        }
    }

    /// What that means for what the task was to do, and why, when it is not well.
    pub fn evaluated(&self) -> (Status, Option<String>) {
        match self {
            Self::Ok | Self::Running => (Status::Ok, None),
            Self::Warnings(number) => {
                (Status::Warning, Some(format!("ended with {}", count(*number as usize, "warning"))))
            }
            Self::Unknown => (Status::Unknown, Some("ended, and nobody knows how".to_owned())),
            Self::Failed(why) => (Status::Critical, Some(format!("failed: {why}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_known() {
        for (status, has_end, expected) in [
            (None, false, Ended::Running),
            (None, true, Ended::Unknown),
            (Some(""), true, Ended::Unknown),
            (Some("running"), false, Ended::Running),
            (Some("RUNNING"), false, Ended::Running),
            (Some("OK"), true, Ended::Ok),
            (Some("WARNINGS: 3"), true, Ended::Warnings(3)),
            (Some("WARNINGS: many"), true, Ended::Failed("WARNINGS: many".to_owned())),
            (Some("unexpected status"), true, Ended::Unknown),
            (Some("job errors"), true, Ended::Failed("job errors".to_owned())),
        ] {
            assert_eq!(Ended::read(status, has_end), expected, "{status:?}");
        }
    }
}
