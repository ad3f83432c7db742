//! The scheduler under random faults, checked against invariants and against a naive model of its rules.

mod simulation;

/// To run more seeds: `cargo run --release -p scheduler --example seeds -- --seeds 10000`.
#[test]
fn invariants_hold_for_many_seeds() {
    let mut total = simulation::Summary::default();
    for seed in 0..60 {
        match simulation::run(seed) {
            Ok(summary) => total = total.and(summary),
            Err(violation) => panic!(
                "{violation}\nreplay: cargo run --release -p scheduler --example seeds -- --first {seed} --seeds 1"
            ),
        }
    }
    assert!(
        total.polls > 10_000 && total.probes > 100 && total.dead_letters > 100,
        "the runs exercise too little: {total:?}"
    );
}

#[test]
fn the_same_seed_yields_the_same_run() {
    assert_eq!(simulation::run(7), simulation::run(7));
}
