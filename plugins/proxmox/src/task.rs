//! The result of a task.

use crate::count;
use polliwog_sdk::Status;
use polliwog_sdk::lenient::{Field, Text};

/// The result of a task, from its `status` and `endtime`, on all three products.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is running.
    Running,
    /// It succeeded.
    Ok,
    /// It succeeded, with this number of warnings.
    Warnings(u32),
    /// The result is not known: the node went down, or the log is gone.
    Unknown,
    /// It failed, for this reason.
    Failed(String),
}

/// The text of a field that says why something failed. A value of another type says that it failed.
pub fn complaint(field: &Field<Text>) -> Option<&str> {
    match field {
        Field::Is(Text(text)) => Some(text.trim()),
        Field::Odd(odd) => Some(odd),
        Field::Absent => None,
    }
}

impl Ended {
    /// Reads the status of a task: missing while it runs, `OK`, `WARNINGS: 3`, `unexpected status`, or the reason of a
    /// failure.
    pub fn read(status: Option<&str>, has_end: bool) -> Self {
        match status.map(str::trim) {
            None | Some("") if has_end => Self::Unknown,
            None | Some("") => Self::Running,
            // Proxmox VE writes it in one of its lists.
            Some(status) if status.eq_ignore_ascii_case("running") => Self::Running,
            Some(status) if status.eq_ignore_ascii_case("ok") => Self::Ok,
            Some("unexpected status" | "unknown" | "stopped: unknown") => Self::Unknown,
            Some(status) => match status.strip_prefix("WARNINGS:").map(|number| number.trim().parse()) {
                Some(Ok(number)) => Self::Warnings(number),
                _ => Self::Failed(status.to_owned()),
            },
        }
    }

    /// Returns the status, and the reason if it is not ok.
    pub fn evaluated(&self) -> (Status, Option<String>) {
        match self {
            Self::Ok | Self::Running => (Status::Ok, None),
            Self::Warnings(number) => {
                (Status::Warning, Some(format!("ended with {}", count(*number as usize, "warning"))))
            }
            Self::Unknown => (Status::Unknown, Some("ended with an unknown result".to_owned())),
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
            (Some("ok"), true, Ended::Ok),
            (Some("WARNINGS: 3"), true, Ended::Warnings(3)),
            (Some("WARNINGS: many"), true, Ended::Failed("WARNINGS: many".to_owned())),
            (Some("unexpected status"), true, Ended::Unknown),
            (Some("job errors"), true, Ended::Failed("job errors".to_owned())),
        ] {
            assert_eq!(Ended::read(status, has_end), expected, "{status:?}");
        }
    }
}
