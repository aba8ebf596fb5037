#!/usr/bin/env bash
# Runs the tests again and again while every core is kept busy beside them, and says which failed in which run.
#
#   tests/flaky.sh 10                                                  all tests, ten times
#   tests/flaky.sh 10 --all-features --test main redis::    with other arguments for `cargo test`
#
# The output of a run that failed stays in target/flaky.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${1:?how many runs?}
shift
[ $# -gt 0 ] || set -- --all-features
logs=target/flaky
mkdir -p "$logs"

cargo test --no-run "$@"

busy=()
trap 'kill "${busy[@]}" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
for _ in $(seq "$(getconf _NPROCESSORS_ONLN)"); do
    while :; do :; done &
    busy+=($!)
done

failed=0
names=
for run in $(seq "$runs"); do
    log=$logs/run-$run.log
    if cargo test --no-fail-fast "$@" >"$log" 2>&1; then
        echo "run $run: passed"
        rm "$log"
        continue
    fi
    failed=$((failed + 1))
    # A binary that crashes names no test.
    found=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log")
    found=${found:-"no test: see $log"}
    names+=$found$'\n'
    printf 'run %s: FAILED: %s\n' "$run" "${found//$'\n'/, }"
done

echo "$runs runs, $failed failed"
printf '%s' "$names" | sort | uniq -c | sort -rn
[ "$failed" -eq 0 ]
