//! Problems of settings.

use polliwog_sdk::SettingsProblem;

/// Creates the problem of the setting with this path, for example `groups.ages[0].for`. The message does not repeat it.
pub(crate) fn problem_of(setting: &str, message: String) -> SettingsProblem {
    SettingsProblem::at(format!("/{}", setting.replace(['.', '['], "/").replace(']', "")), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_becomes_a_pointer() {
        let problem = problem_of("groups.ages[0].for", "it is empty".to_owned());
        assert_eq!(problem.setting.as_deref(), Some("/groups/ages/0/for"));
        assert_eq!(problem.sentence(), "groups.ages.0.for: it is empty");
    }
}
