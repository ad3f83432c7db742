//! Plugins that are expensive to compile: the child process that compiles them has limits, and the host is not
//! affected.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use egress::Egress;
use sandbox::{Compiler, Config, Sandbox};
use std::fmt::Write;
use std::num::NonZeroUsize;
use tests::wat;

fn sandbox() -> Sandbox {
    let compiler = Compiler::temporary((env!("CARGO_BIN_EXE_compile"), &[]), [7; 32], 1).unwrap();
    let config = Config { instance_slots: 4, lanes: NonZeroUsize::MIN, ..Config::default() };
    Sandbox::new(config, compiler, &Egress::new(egress::Config::default())).unwrap()
}

/// The peak resident memory of this process, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn repeated(count: usize, one: impl Fn(usize) -> String) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        let _ = writeln!(text, "{}", one(number));
        text
    })
}

/// Returns each plugin with its name and whether it must be refused. The others may load if they fit the child's
/// limits.
fn bombs() -> Vec<(&'static str, Vec<u8>, bool)> {
    let plugin = |text: &str| wat::plugin("bomb", "1.0.0", text);
    let one_function = |body: String| plugin(&format!("(func $bomb (param i32) (result i32)\n{body}\nlocal.get 0)"));
    let nested = |depth: usize| wat::component(&format!("{}{}", "(component ".repeat(depth), ")".repeat(depth)));
    vec![
        ("many functions", plugin(&repeated(30_000, |n| format!("(func $f{n} (result i32) i32.const {n})"))), false),
        (
            "many types",
            plugin(&repeated(50_000, |n| format!("(type $t{n} (func (param {})))", "i32 ".repeat(n % 9)))),
            false,
        ),
        ("many globals", plugin(&repeated(50_000, |n| format!("(global $g{n} (mut i64) (i64.const {n}))"))), false),
        ("many locals", one_function(format!("(local {})", "i64 ".repeat(49_000))), false),
        (
            "a long function",
            one_function("(local.set 0 (i32.mul (local.get 0) (local.get 0)))\n".repeat(200_000)),
            false,
        ),
        ("many no-ops", one_function("nop\n".repeat(2_000_000)), false),
        ("deep blocks", one_function(format!("{}{}", "block\n".repeat(5_000), "end\n".repeat(5_000))), false),
        ("a wide jump", one_function(format!("block local.get 0 br_table {} end", "0 ".repeat(60_000))), false),
        ("components in components", nested(90), true),
    ]
}

#[tokio::test]
async fn compiling_expensive_plugins_does_not_grow_the_hosts_memory() {
    let sandbox = sandbox();
    let honest = wat::plugin("honest", "1.0.0", "");
    let bombs = bombs();
    // Measure after the plugins are created, to exclude their own memory.
    let before = peak();
    let largest = bombs.iter().map(|(_, bomb, _)| bomb.len() as u64).max().unwrap();
    for (name, bomb, refused) in &bombs {
        match sandbox.load(bomb).await {
            Ok(_) => assert!(!refused, "{name} was accepted"),
            Err(refusal) => assert!(
                ["compile_limit", "not_valid", "too_large", "wrong_exports"].contains(&refusal.code),
                "{name}: {}: {refusal}",
                refusal.code
            ),
        }
    }
    // Compiling one of them in this process would take hundreds of megabytes; mapping the result takes the touched
    // pages.
    let grown = peak().saturating_sub(before);
    assert!(grown < (64 << 20) + 4 * largest, "the host grew by {} MB", grown >> 20);
    assert!(sandbox.load(&honest).await.is_ok(), "other plugins still load");

    // A function that is too long for the child's memory or time limit. It comes last, because creating it takes memory
    // in this process.
    let body =
        "(local.set 0 (i32.rem_u (i32.mul (local.get 0) (local.get 0)) (i32.add (local.get 0) (i32.const 7))))\n";
    let text = format!("(func $bomb (param i32) (result i32)\n{}\nlocal.get 0)", body.repeat(450_000));
    let refusal = sandbox.load(&wat::plugin("bomb", "1.0.0", &text)).await.unwrap_err();
    assert_eq!(refusal.code, "compile_limit", "{refusal}");
    assert!(sandbox.load(&honest).await.is_ok(), "other plugins still load");
}
