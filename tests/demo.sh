# Sourced by scripts that need a running demo: builds the program (PROFILE=release for a release build), adds it to
# PATH, creates an empty folder, changes to it and starts the demo there. `$root` is the repository.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
profile=${PROFILE:-debug}
cargo build --locked --quiet --workspace --bin polliwog $([ "$profile" = release ] && echo --release)
export PATH="$root/target/$profile:$PATH"
work=$(mktemp -d)
# Wait for the demo's end, because the next script needs its ports.
trap 'kill "$demo" 2>/dev/null && wait "$demo" || true; rm -rf "$work"' EXIT
export XDG_DATA_HOME="$work/data"
cd "$work"
printf '[server]\nlisten = "127.0.0.1:0"\nmetrics_listen = "127.0.0.1:0"\n' >demo.toml
polliwog run --demo --config demo.toml >/dev/null 2>demo.log &
demo=$!
for _ in $(seq 300); do
    grep -q "pages and API at" demo.log && break
    kill -0 "$demo" || { cat demo.log; exit 1; }
    sleep 0.1
done
