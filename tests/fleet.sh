#!/bin/sh
# Tests of a fleet with a real broker, by each nats-server that is named; without a name, by the one in PATH.
set -eu
cd "$(dirname "$0")/.."
for server in "${@:-nats-server}"; do
    # The tests run in the directories of their crates.
    server=$(realpath "$(command -v "$server")")
    "$server" --version
    NATS_SERVER=$server cargo test --locked --workspace --test fleet
    # More seeds find more; each takes ten seconds. Seed 200 restores descriptions and states from copies of different age.
    NATS_SERVER=$server cargo test --locked --workspace --test fleet_chaos -- ${SEEDS:-1 2 3 200}
done
