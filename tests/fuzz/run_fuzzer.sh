#!/usr/bin/env bash
# One fuzzer for a bounded time: 120 s times HEADROOM_TEST_SCALE, at least 20. Ends with one line that says how much was tried.
#   run_fuzzer.sh FUZZER SEEDS-PROGRAM FOLDER [libFuzzer option…]
set -euo pipefail
fuzzer=$1 seeds=$2 folder=$3
shift 3
name=$(basename -- "$fuzzer")
log=$folder/$name.log
seconds=$(awk -v scale="${HEADROOM_TEST_SCALE:-1}" 'BEGIN { s = int(120 * scale); print (s < 20 ? 20 : s) }')

# From nothing each time: what a run finds does not depend on the one before it.
rm -rf -- "${folder:?}/$name" && mkdir -p -- "$folder/$name/seeds" "$folder/$name/corpus" "$folder/findings"
"$seeds" "$folder/$name/seeds"

if ! "$fuzzer" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -seed=1 -print_final_stats=1 \
  -artifact_prefix="$folder/findings/$name-" "$@" "$folder/$name/corpus" "$folder/$name/seeds" >"$log" 2>&1; then
  grep -v '^#' "$log" | tail -n 60
  echo "fuzz: $name: FINDING, see $folder/findings and $log"
  exit 1
fi
executions=$(awk '/^stat::number_of_executed_units:/ { print $2 }' "$log")
coverage=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)
rm -rf -- "${folder:?}/$name"
if ((${executions:-0} < 200)); then
  tail -n 20 "$log"
  echo "fuzz: $name: only ${executions:-0} executions in $seconds s"
  exit 1
fi
echo "fuzz: $name: $executions executions in $seconds s, $coverage, no finding"
