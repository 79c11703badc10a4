#!/usr/bin/env bash
# One of four worker processes is killed at seeded moments of a strict job: the others go on, with the processes that
# they are, and the weights are those of a run that has lost nobody. Prints how long the next committed step takes.
#   lost_worker_test.sh GRAPH_RUNNER [KILLS [FIRST_SEED]]
# KILLS is 5; WEFT_KILLS and WEFT_FIRST_SEED say it, too.
set -uo pipefail
runner=$1
case $1 in /*) ;; *) runner=$PWD/$1 ;; esac
readonly kills=${2:-${WEFT_KILLS:-5}} first=${3:-${WEFT_FIRST_SEED:-1}} steps=400 workers=4
. tests/faults/job.sh
cd "$(mktemp -d)" || exit 1
export HOME=$PWD  # where the job finds its token
job=
clean_up() {
  if [ -n "$job" ]; then kill -9 "$job" 2> /dev/null; fi  # its workers end with it
  rm -rf "$PWD"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

make_data 480
"$runner" example lenet -o model.onnx > /dev/null 2>&1 || fail "example lenet"
train whole $steps || fail "whole: $(tail -3 whole.log)"

worker_ids() { pgrep -P "$job" 2> /dev/null | sort; }
goes_on() { grep -q 'workers go on as' "$1.log" || ! kill -0 "$job" 2> /dev/null; }

# strike SEED : one run with a kill. Appends seconds to times: to the next step; those that the job says, and their
# parts: settled, plan, joined, programs, state.
strike() {
  local name=lost seed=$1 at victim left killed next told parts
  RANDOM=$seed
  at=$((10 + RANDOM % (steps - 100)))
  victim=$((1 + RANDOM % workers))
  rm -f $name.*
  train $name $steps --local $workers --parallel dp=$workers &
  shell=$!
  job=
  until job=$(pgrep -P "$shell" | head -1) && [ -n "$job" ] || ! kill -0 "$shell" 2> /dev/null; do :; done
  await 60 has_done $name "$at" || fail "seed $seed: step $at is not reached: $(tail -3 $name.log)"
  sleep "0.00$((RANDOM % 10))"
  left=$(worker_ids | sed "${victim}d")
  killed=${EPOCHREALTIME/./}
  kill -9 "$(worker_ids | sed -n "${victim}p")" || fail "seed $seed: no worker to kill at step $at"
  await 20 goes_on $name || fail "seed $seed: the job does not go on: $(tail -3 $name.log)"
  # Rows that come after this line are of steps of those that are left.
  local before
  before=$(rows $name)
  await 20 has_done_or_ended $name $((before + 1))
  next=${EPOCHREALTIME/./}
  # A new process may have come in the place of the killed one.
  ! kill -0 "$job" 2> /dev/null || [ -z "$(worker_ids)" ] || [ -z "$(comm -13 <(worker_ids | sort) <(sort <<< "$left"))" ] ||
    fail "seed $seed: the workers that are left are others: $(worker_ids | xargs), not $(xargs <<< "$left")"
  wait "$shell" || fail "seed $seed: exit $? after the kill: $(tail -3 $name.log)"
  job=
  told=$(sed -n -E 's/^lost .* after ([0-9.]+) s: .*/\1/p' $name.log)
  [ -n "$told" ] || fail "seed $seed: nobody was lost"
  cmp -s whole.onnx $name.onnx || fail "seed $seed: the weights are others after worker $victim was killed at step $at"
  cmp -s <(cut -d, -f1,2 whole.csv) <(cut -d, -f1,2 $name.csv) || fail "seed $seed: a step is lost, repeated, or has another loss"
  parts=$(sed -n -E 's/^lost .*\(settled ([0-9.]+) s.*plan ([0-9.]+) s.*, joined ([0-9.]+) s, programs ([0-9.]+) s, state ([0-9.]+) s\)$/\1 \2 \3 \4 \5/p' $name.log)
  [ -n "$parts" ] || fail "seed $seed: the job does not say where the time went: $(grep '^lost' $name.log)"
  grep -q '^lost .*(prepared)' $name.log && prepared=$((prepared + 1))
  [ -n "$told" ] && awk -v us=$((next - killed)) -v told="$told" -v parts="$parts" 'BEGIN { print us / 1e6, told, parts }' >> times
  [ "$(sha256sum < whole.onnx)" = "$(sha256sum < $name.onnx)" ] && equal=$((equal + 1))
}
has_done_or_ended() { has_done "$1" "$2" || ! kill -0 "$job" 2> /dev/null; }

equal=0 prepared=0
: > times
for seed in $(seq "$first" $((first + kills - 1))); do
  before=$failures
  strike "$seed"
  [ "$failures" -eq "$before" ] || echo "again: tests/faults/lost_worker_test.sh $1 1 $seed"
done
percentile() { sort -g -k "$1" times | awk -v p="$2" -v k="$1" '{ v[NR] = $k } END { i = int(NR * p / 100 + 0.999999); print NR ? v[i < 1 ? 1 : i] : "-" }'; }
echo "$(wc -l < times) kills of one of $workers workers, dp=$workers, strict: $equal final SHA-256 equal"
printf '%-44s %8s %8s %8s\n' seconds p50 p95 largest
printf '%-44s %8s %8s %8s\n' "from the kill to the next committed step" "$(percentile 1 50)" "$(percentile 1 95)" "$(percentile 1 100)"
printf '%-44s %8s %8s %8s\n' "of these: to bring the others to one step" "$(percentile 2 50)" "$(percentile 2 95)" "$(percentile 2 100)"
column=3
for part in "all at one step" "plan and partitions" "joined the new job" "took its programs" "took the state"; do
  printf '%-44s %8s %8s %8s\n' "    $part" "$(percentile $column 50)" "$(percentile $column 95)" "$(percentile $column 100)"
  column=$((column + 1))
done
echo "the plan was prepared in $prepared of $(wc -l < times)"
[ "$equal" -eq "$kills" ] || fail "$equal of $kills runs have the weights of the undisturbed one"
conclude "no step was lost or repeated"
