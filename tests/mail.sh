#!/bin/sh
# Sends notifications by email to a real mail server, OpenSMTPD, over STARTTLS and over TLS from the start, with a
# password. Needs Debian's opensmtpd, openssl, python3, and root, because the server gives up its rights itself.
set -eu
cd "$(dirname "$0")/.."
cargo build --locked --workspace --bin polliwog
python3 tests/mail/check.py target/debug/polliwog
