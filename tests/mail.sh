#!/bin/sh
# Sends notifications by email to a real mail server, Exim, over STARTTLS and over TLS from the start, with a
# password. Needs Debian's exim4-daemon-light, openssl, python3, and root, because the server runs as its user.
set -eu
cd "$(dirname "$0")/.."
cargo build --locked --workspace --bin polliwog
python3 tests/mail/check.py target/debug/polliwog
