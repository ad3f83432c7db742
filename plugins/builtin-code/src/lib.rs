//! The built-in plugins as machine code for the target of this program, so that no start has to compile them.

#![forbid(unsafe_code)]

use machine_code::{Archive, BuiltIn};

include!(concat!(env!("OUT_DIR"), "/code.rs"));
