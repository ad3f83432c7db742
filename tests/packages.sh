#!/usr/bin/env bash
# Makes the packages for authors of plugins, as they would be published: the crate, the package for npm, and the one for Python.
# Nothing is published. Needs npm and python3 with venv, and their registries.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

has() { # listing file...
    local file
    for file in "${@:2}"; do
        grep -qE "(^|/)$file\$" <<<"$1" || { printf 'the package lacks %s:\n%s\n' "$file" "$1" >&2; exit 1; }
    done
}

echo "== polliwog-sdk (cargo publish --dry-run)"
cargo publish --dry-run --locked --allow-dirty --quiet -p polliwog-sdk
has "$(cargo package --list --allow-dirty -p polliwog-sdk)" src/lib.rs src/bindings.rs examples/log_in.rs README.md LICENSE

echo "== polliwog-plugin (npm pack)"
mkdir "$work/js"
cp "$root"/sdk/packages/js/* "$root"/sdk/templates/js/polliwog.{js,d.ts} "$root/LICENSE" "$work/js"
cp -r "$root/wit" "$work/js/wit"
(cd "$work/js" && npm pack --silent)
has "$(tar tzf "$work"/js/*.tgz)" package.json polliwog.js polliwog.d.ts wit/http.wit README.md LICENSE

echo "== polliwog-plugin (python -m build)"
mkdir -p "$work/python/polliwog_wit"
cp "$root"/sdk/packages/python/* "$root/sdk/templates/python/polliwog.py" "$root/LICENSE" "$work/python"
cp "$root"/wit/*.wit "$work/python/polliwog_wit"
echo '"""The contract of Polliwog plugins, as WIT files."""' >"$work/python/polliwog_wit/__init__.py"
python3 -m venv "$work/venv"
tests/again.sh "$work/venv/bin/pip" install --quiet --disable-pip-version-check build
(cd "$work/python" && "$work/venv/bin/python" -m build --outdir "$work/dist" . >"$work/log" 2>&1) || { cat "$work/log" >&2; exit 1; }
has "$("$work/venv/bin/python" -m zipfile --list "$work"/dist/*.whl | awk '{ print $1 }')" polliwog.py polliwog_wit/http.wit
ls "$work/dist"
