#!/usr/bin/env bash
# What the crate depends on: licences, sources, duplicates and advisories of all dependencies (cargo-deny), and whether the
# oldest versions that Cargo.toml allows still compile.
#
#   tests/supply.sh                   everything; cargo-deny fetches its database of advisories
#   tests/supply.sh --no-advisories   on a machine that reaches the package registry only
#
# It is no part of tests/run.sh: cargo-deny, where it is missing, takes minutes to compile.
set -euo pipefail
cd "$(dirname "$0")/.."

checks=(advisories bans licenses sources)
case ${1:-} in
    '') ;;
    --no-advisories) checks=(bans licenses sources) ;;
    *) echo "usage: tests/supply.sh [--no-advisories]" >&2; exit 2 ;;
esac

step() { printf '\n== %s\n' "$*"; "$@"; }

command -v cargo-deny >/dev/null || step cargo install --locked cargo-deny
step cargo deny check "${checks[@]}"

# A copy without Cargo.lock and without dev-dependencies: those would raise the versions that are tried. Cargo marks the flag as
# unstable, so the variable lets the stable one take it.
oldest=$(mktemp -d)
trap 'rm -rf "$oldest"' EXIT
cp -r src docs "$oldest"
cp README.md CONTRIBUTING.md "$oldest"
sed '/^\[dev-dependencies\]/,/^$/d; /^\[\[/,$d' Cargo.toml >"$oldest/Cargo.toml"
export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$PWD/target/oldest
cd "$oldest"
step cargo update -Z direct-minimal-versions
step cargo check --lib --all-features
printf '\nall of it passed\n'
