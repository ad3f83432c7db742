//! Writes to the host's log: `log::info!("{} nodes", nodes.len())`.
//!
//! The host adds the plugin's kind and the target's id, and accepts 100 lines per poll. In native tests, lines go to
//! stderr.
//!
//! ```
//! use polliwog_sdk::log;
//!
//! let nodes = ["pve1", "pve2"];
//! log::debug!("{} nodes: {nodes:?}", nodes.len());
//! ```

/// The severity of a log line.
///
/// ```
/// use polliwog_sdk::log::{Level, write};
///
/// let is_odd = true;
/// write(if is_odd { Level::Warn } else { Level::Debug }, "the answer has no version");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are common")]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// Writes a line to the host's log.
pub fn write(level: Level, message: &str) {
    #[cfg(target_family = "wasm")]
    {
        use crate::bindings::polliwog::plugin::log as contract;
        let level = match level {
            Level::Trace => contract::Level::Trace,
            Level::Debug => contract::Level::Debug,
            Level::Info => contract::Level::Info,
            Level::Warn => contract::Level::Warn,
            Level::Error => contract::Level::Error,
        };
        contract::write(level, message);
    }
    #[cfg(not(target_family = "wasm"))]
    eprintln!("{level:?}: {message}");
}

macro_rules! level {
    ($dollar:tt $name:ident $macro:ident $level:ident $doc:literal) => {
        #[doc = $doc]
        #[macro_export]
        #[doc(hidden)]
        macro_rules! $macro {
                            ($dollar($dollar part:tt)*) => {
                                $crate::log::write($crate::log::Level::$level, &::std::format!($dollar($dollar part)*))
                            };
                        }
        pub use $macro as $name;
    };
}

level!($ trace __log_trace Trace "Writes a line at level trace: single steps, for debugging.");
level!($ debug __log_debug Debug "Writes a line at level debug: details, for debugging.");
level!($ info __log_info Info "Writes a line at level info: normal events.");
level!($ warn __log_warn Warn "Writes a line at level warn: unexpected conditions.");
level!($ error __log_error Error "Writes a line at level error: failures.");
