#!/usr/bin/env bash
# Everything that must hold before a change lands: formatting, lints, every feature alone, all tests, the docs.
#
# On two cores, with nothing compiled before and other test runs beside it, it took 22 minutes, most of them to compile. The
# tests run for six to seven minutes: those of Redis (170 s), Postgres (90 s), SQLite (36 s) and `processes` (36 s) take longest.
set -euo pipefail
cd "$(dirname "$0")/.."

# Lines in backtraces are enough: there is less to compile and to link.
export CARGO_PROFILE_DEV_DEBUG=line-tables-only

# Packages ask the policy whether they may start what they bring. They may not: the tests start their own servers.
policy=/usr/sbin/policy-rc.d
packages() {
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
    fi
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -yq "$@"
}

# What the steps need that Rust does not bring along: the packages, and a command that shows whether they are there.
need() {
    if ! bash -c "$2" >/dev/null 2>&1; then
        [ "$(id -u)" = 0 ] || { echo "missing, run: sudo apt-get install $1"; exit 1; }
        # In a shell of its own, with which the policy goes.
        (packages $1)
    fi
}

step() { printf '\n== %s\n' "$*"; "$@"; }

need redis-server 'command -v redis-server && command -v redis-cli'
need postgresql 'command -v initdb || ls /usr/lib/postgresql/*/bin/initdb'
need pgbouncer 'command -v pgbouncer || ls /usr/sbin/pgbouncer'

step cargo fmt --all --check
step cargo clippy --all-targets --all-features -- -D warnings
step cargo clippy --lib --no-default-features -- -D warnings
# The features of Cargo.toml, one by one.
for feature in $(sed -n '/^\[features\]/,/^\[/s/^\([a-z][a-z0-9-]*\) = .*/\1/p' Cargo.toml | grep -v '^default$'); do
    step cargo clippy --lib --no-default-features --features "$feature" -- -D warnings
done
step cargo test --all-features
# Our schemes against other crates that verify them: a package of its own, so that nothing else compiles those. One of them
# links with OpenSSL.
need "pkg-config libssl-dev" 'pkg-config --exists openssl'
step cargo fmt --manifest-path differential/Cargo.toml --check
step cargo clippy --manifest-path differential/Cargo.toml --target-dir target/differential --all-targets -- -D warnings
step cargo test --manifest-path differential/Cargo.toml --target-dir target/differential
step env RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features
printf '\nall of it passed\n'
