//! Runs each misbehaving plugin a few times. The long form is `cargo run --release -p tests --bin hostile`.

use tests::hostile::{World, cases};

/// The number of runs of each guest.
const RUNS: usize = 3;

#[tokio::test]
async fn every_guest_is_contained_while_the_honest_target_is_polled() {
    let world = World::new(env!("CARGO_BIN_EXE_compile")).await;
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in cases() {
        for _ in 0..RUNS {
            if let Err(why) = world.run(&case).await {
                wrong.push(why);
                break;
            }
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "of {count}:\n{}", wrong.join("\n"));
    assert!(count >= 60, "{count} guests");
}
