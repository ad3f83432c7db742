//! Stores more than fits in many ways, then panics.

use polliwog_sdk::{CallError, Endpoint, Report, store};

guests::guest!("store-overflows", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    for number in 0..400_u32 {
        let key = format!("key-{}", number % 100);
        let _ = store::set(&key, &vec![0; (number * 200 % 70_000) as usize]);
        let _ = store::set(&"k".repeat((number % 300) as usize), b"v");
        store::remove(&format!("key-{}", number % 37));
    }
    assert!(store::keys().len() <= 64, "it has more keys than fit");
    panic!("what was stored is lost")
}
