//! Allocates memory until the limit.

use polliwog_sdk::{CallError, Endpoint, Report};

guests::guest!("memory-bomb", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let mut held: Vec<Vec<u8>> = Vec::new();
    loop {
        held.push(std::hint::black_box(vec![1; 1 << 20]));
    }
}
