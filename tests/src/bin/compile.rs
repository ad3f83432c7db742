//! The child process that compiles plugins for the tests' sandboxes. The host starts itself for this.

use std::process::ExitCode;

fn main() -> ExitCode {
    sandbox::compile_child()
}
