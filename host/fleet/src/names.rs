//! Names that may be part of a subject.
//!
//! The broker separates the parts of a subject by dots and reads `*` and `>` as wildcards, so names have neither.

/// The rule for the ids of devices and the names of deployments, for messages.
pub const RULE: &str = "1 to 63 characters of a-z, 0-9 and '-', with a letter or digit at both ends";

/// The longest name in bytes.
const LONGEST: usize = 63;

/// Returns true if a text is a valid device id or deployment name.
pub fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= LONGEST
        && !text.is_empty()
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Returns the key of what a device reports about a deployment.
pub fn state_key(device: &str, deployment: &str) -> String {
    format!("state.{device}.{deployment}")
}

/// Returns the device and the deployment of a key; `None` if it is not the key of a state.
pub fn of_state_key(key: &str) -> Option<(&str, &str)> {
    let (device, deployment) = key.strip_prefix("state.")?.split_once('.')?;
    (is_name(device) && is_name(deployment)).then_some((device, deployment))
}

/// Returns the key of what a device says about itself.
pub fn info_key(device: &str) -> String {
    format!("info.{device}")
}

/// Returns the device of a key; `None` if it is not the key of a device's description.
pub fn of_info_key(key: &str) -> Option<&str> {
    key.strip_prefix("info.").filter(|device| is_name(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_change_the_meaning_of_a_subject() {
        for good in ["a", "0", "site-00001-host-02", &"x".repeat(63)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "-", "-a", "a-", "a.b", "*", ">", "a b", "A", "é", "a_b", "a\n", &"x".repeat(64)] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert_eq!(of_state_key(&state_key("host-1", "dns")), Some(("host-1", "dns")));
        assert_eq!(of_info_key(&info_key("host-1")), Some("host-1"));
        for bad in ["state.a", "state.a.b.c", "state..b", "state.a.*", "info.a", "state.a.", "meta", ""] {
            assert_eq!(of_state_key(bad), None, "{bad}");
        }
        for bad in ["info.", "info.a.b", "info.>", "state.a", "information.a"] {
            assert_eq!(of_info_key(bad), None, "{bad}");
        }
    }
}
