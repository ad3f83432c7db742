//! Allocates memory until the limit.

use polliwog_sdk::{PollError, Report, Target};

guests::guest!("memory-bomb", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    let mut held: Vec<Vec<u8>> = Vec::new();
    loop {
        held.push(std::hint::black_box(vec![1; 1 << 20]));
    }
}
