//! Converts the cause of a failed call to a message for the plugin's author: the limit or the trap, the functions on
//! the stack, and the plugin's last output.

use crate::host::State;
use crate::limits::{Denied, Limits};
use crate::meter::CpuExhausted;
use model::{Cause, Failure, FailureCategory, clean};
use wasmtime::{Trap, WasmBacktrace};

/// Returns a failure of the plugin, which says nothing about its target.
pub(crate) fn plugin_fault(code: &str, message: String) -> Failure {
    let category = FailureCategory::Plugin;
    Failure { category, code: code.to_owned(), cause: Cause::Other, message, retry_after: None }
}

/// Returns the failure for an exhausted CPU limit.
pub(crate) fn cpu_fault(limits: &Limits) -> Failure {
    plugin_fault("cpu_limit", format!("the plugin used more than its {} ms of CPU time", limits.cpu.as_millis()))
}

/// Converts an error of wasmtime to a failure that names the limit or the trap.
pub(crate) fn fault(error: &wasmtime::Error, state: &State, limits: &Limits) -> Failure {
    if error.downcast_ref::<CpuExhausted>().is_some() {
        let failure = cpu_fault(limits);
        return Failure { message: failure.message + &functions(error), ..failure };
    }
    if let Some(denied) = state.limiter.denied {
        let (code, message) = match denied {
            Denied::Memory => {
                ("memory_limit", format!("the plugin used more than its {} MiB of memory", limits.memory >> 20))
            }
            Denied::Table => ("table_limit", "the plugin used more table entries than a poll may have".to_owned()),
        };
        return plugin_fault(code, message + &functions(error));
    }
    // wasmtime has no error type for this case.
    if format!("{error:#}").contains("fuel allocated for hostcalls") {
        let message = format!("the plugin passed more than {} MiB to the host at once", limits.report >> 20);
        return plugin_fault("output_limit", message);
    }
    if let Some(wasmtime_wasi::I32Exit(code)) = error.downcast_ref() {
        return plugin_fault("exit", format!("the plugin called exit with code {code}: a poll must return a report"));
    }
    let (code, message) = match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow | Trap::MemoryOutOfBounds) => {
            ("stack", "the plugin exhausted its stack or accessed memory that is not its own".to_owned())
        }
        Some(Trap::UnreachableCodeReached) => ("panic", "the plugin panicked or aborted".to_owned()),
        Some(trap) => ("trap", format!("the plugin trapped: {trap}")),
        None => ("trap", clean(&format!("the plugin failed: {:#}", error.root_cause()), 512)),
    };
    plugin_fault(code, format!("{message}{}", functions(error)))
}

/// Returns the guest's functions on the stack, innermost first. Empty if the plugin has no name section. Each function
/// has its file and line if the engine uses [`Backtrace::SourceLines`](crate::Backtrace::SourceLines) and the plugin
/// carries them.
fn functions(error: &wasmtime::Error) -> String {
    const SHOWN: usize = 6;
    /// Parts of function names that are on every stack and do not help.
    const COMMON: [&str; 11] = [
        "abort",
        "alloc::",
        "core::",
        "export_call",
        "panic",
        "polliwog:plugin/",
        "polliwog_sdk::",
        "__rust",
        "std::",
        "wit_bindgen",
        "wit_dylib",
    ];
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return String::new() };
    // The text of the backtrace has demangled names, but `FrameInfo::func_name` has not. A frame is a line with a name,
    // followed by a line with its place. A frame without a place has `MODULE!` before its name.
    let text = backtrace.to_string();
    let mut frames: Vec<(&str, Option<&str>)> = Vec::new();
    for line in text.lines() {
        if let Some((_, name)) = line.split_once("- ") {
            frames.push((name.split_once('!').map_or(name, |(_, name)| name).trim(), None));
        } else if let (Some(place), Some((_, known))) = (line.trim().strip_prefix("at "), frames.last_mut()) {
            *known = Some(place);
        }
    }
    // In `<Queues as polliwog_sdk::Poller>::poll` the relevant part is the author's type.
    let subject = |name: &str| match name.strip_prefix('<').and_then(|name| name.split_once(" as ")) {
        Some((subject, _)) => subject.to_owned(),
        None => name.to_owned(),
    };
    let is_relevant = |name: &str| {
        !name.is_empty()
            && name != "<unknown>"
            && !name.starts_with("<wasm function")
            && !COMMON.iter().any(|common| subject(name).contains(common))
    };
    let frames = frames.into_iter().filter(|(name, _)| is_relevant(name)).take(SHOWN);
    let names: Vec<String> = frames
        .map(|(name, place)| {
            let name = clean(name, 80);
            // The end of a long path is the relevant part.
            let place = place.map(|place| {
                let parts: Vec<&str> = place.rsplit('/').take(3).collect();
                clean(&parts.into_iter().rev().collect::<Vec<_>>().join("/"), 120)
            });
            place.map_or(name.clone(), |place| format!("{name} ({place})"))
        })
        .collect();
    if names.is_empty() { String::new() } else { format!(" in {}", names.join(", called by ")) }
}

/// Appends the guest's last output to the message of a failure of the plugin.
pub(crate) fn with_output(mut failure: Failure, output: &str) -> Failure {
    /// Lines that the runtime of a language adds to a panic in Rust and to an exception in JavaScript or Python. They
    /// do not help, because a guest has no environment to set `RUST_BACKTRACE` in.
    const ADDED: [&str; 6] = [
        "note: run with `RUST_BACKTRACE=1` environment variable",
        "invalid variant tag value `undefined`",
        "Stack:",
        "/initializer.js:",
        "Redirecting call to abort() to mozalloc_abort",
        "panicked at runtime/src/lib.rs:",
    ];
    // Python prints its own traceback after the message of the SDK's helpers.
    let own = output.split("Traceback (most recent call last):").next().filter(|own| !own.trim().is_empty());
    let relevant: Vec<&str> =
        own.unwrap_or(output).lines().filter(|line| !ADDED.iter().any(|added| line.contains(added))).collect();
    let relevant = relevant.join("\n");
    // The output of a plugin without the SDK's helpers consists only of the runtime's lines.
    let shown = if relevant.trim().is_empty() { output.trim() } else { relevant.trim() };
    if failure.category == FailureCategory::Plugin && !shown.is_empty() {
        failure.message = clean(&format!("{}; output: {shown}", failure.message), 1024);
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_contains_only_the_plugins_own_output() {
        let message = |output: &str| with_output(plugin_fault("panic", "it panicked".to_owned()), output).message;
        let javascript = "TypeError: no such field (lib/util.js:1)\ninvalid variant tag value `undefined` (received `TypeError`)\nStack:\n  \
                          poll@/tmp/a/initializer.js:1567:17\nRedirecting call to abort() to mozalloc_abort\n";
        assert_eq!(message(javascript), "it panicked; output: TypeError: no such field (lib/util.js:1)");
        let rust = "\nthread '<unnamed>' panicked at src/lib.rs:3:5:\nno queue\nnote: run with `RUST_BACKTRACE=1` environment variable to \
                    display a backtrace\n";
        assert_eq!(message(rust), "it panicked; output: thread '<unnamed>' panicked at src/lib.rs:3:5: no queue");
        let python = "KeyError: 'a' (own.py, line 2, in inner)\nTraceback (most recent call last):\n  File \"/0/polliwog.py\"\n\
                      KeyError: 'a'\nthread '<unnamed>' panicked at runtime/src/lib.rs:1293:29:\nunexpected\n";
        assert_eq!(message(python), "it panicked; output: KeyError: 'a' (own.py, line 2, in inner)");
        let alone = "invalid variant tag value `undefined` (received `TypeError: x`)";
        assert_eq!(message(alone), format!("it panicked; output: {alone}"), "the runtime's lines are the only output");
        assert_eq!(message("\n"), "it panicked");
    }
}
