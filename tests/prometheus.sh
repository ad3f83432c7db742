#!/bin/sh
# Checks docs/monitoring with promtool, and with a real Prometheus that scrapes the running demo. Needs Debian's
# prometheus, and python3.
set -eu
cd "$(dirname "$0")/.."
cargo build --locked --workspace --bin polliwog
promtool check rules docs/monitoring/alerts.yml
test=$(mktemp)
trap 'rm -f "$test"' EXIT
sed "s|ALERTS|$PWD/docs/monitoring/alerts.yml|" tests/prometheus/alerts_test.yml >"$test"
promtool test rules "$test"
python3 tests/prometheus/check.py target/debug/polliwog
