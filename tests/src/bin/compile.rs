//! What the tests' sandboxes start to compile plugins, as the host starts itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    sandbox::compile_child()
}
