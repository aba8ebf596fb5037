#!/usr/bin/env bash
# Everything that must hold before a change lands: formatting, lints, every feature alone, all tests, the docs.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; "$@"; }

step cargo fmt --all --check
step cargo clippy --all-targets --all-features -- -D warnings
step cargo clippy --lib --no-default-features -- -D warnings
# The features of Cargo.toml, one by one.
for feature in $(sed -n '/^\[features\]/,/^\[/s/^\([a-z][a-z0-9-]*\) = .*/\1/p' Cargo.toml | grep -v '^default$'); do
    step cargo clippy --lib --no-default-features --features "$feature" -- -D warnings
done
step cargo test --all-features
step env RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features
printf '\nall of it passed\n'
