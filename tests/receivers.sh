#!/bin/sh
# Sends notifications to real receivers: to Alertmanager, and by email to Exim over STARTTLS and over TLS from the start,
# with a password. Compares the requests of all other channels, field by field, with those that were checked against
# the documentation of each service. Needs Debian's exim4-daemon-light and prometheus-alertmanager, openssl, python3,
# and root, because the mail server runs as its user.
set -eu
cd "$(dirname "$0")/.."
cargo build --locked --workspace --bin polliwog
for check in channels alertmanager mail; do
    python3 -B "tests/receivers/$check.py" target/debug/polliwog
done
