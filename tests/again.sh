#!/bin/sh
# Runs a command that asks a registry, and runs it again after 10 and after 60 seconds if it fails: a registry that is
# busy for a moment must not fail all tests. Shows the output of each failure; its own exit code is that of the last.
set -u
for pause in 10 60 none; do
    "$@" && exit
    result=$?
    [ "$pause" = none ] && exit "$result"
    echo "$1 failed with exit code $result; it is run again in $pause seconds: $*" >&2
    sleep "$pause"
done
