#!/usr/bin/env bash
# One of four worker processes is killed at seeded moments of a strict job: the others go on, with the processes that
# they are, and the weights are those of a run that has lost nobody. Prints how long the next committed step takes.
#   lost_worker_test.sh GRAPH_RUNNER [KILLS [FIRST_SEED [WAY...]]]
# KILLS is 5, for each way: how the four share the work ("dp=2,pp=2"), with the flags that it needs behind a colon.
# WEFT_KILLS, WEFT_FIRST_SEED and WEFT_WAYS say it, too.
set -uo pipefail
runner=$1
case $1 in /*) ;; *) runner=$PWD/$1 ;; esac
readonly kills=${2:-${WEFT_KILLS:-5}} first=${3:-${WEFT_FIRST_SEED:-1}} steps=400 workers=4
ways=("${@:4}")
[ "${#ways[@]}" -gt 0 ] || read -ra ways <<< "${WEFT_WAYS:-dp=4 dp=2,pp=2 dp=2,tp=2 dp=4,zero=3:--replicate:every=5 pp=4:--replicate:every=5}"
. tests/faults/job.sh
job=
own_folder end_job
end_job() { [ -z "$job" ] || kill -9 "$job" 2> /dev/null; }  # its workers end with it

make_data 480
"$runner" example lenet -o model.onnx > /dev/null 2>&1 || fail "example lenet"

# undisturbed PLAN : what nobody has disturbed comes to. Shards have bits of their own, whatever else is split.
undisturbed() {
  rm -f whole.*
  case $1 in
    *tp=*) train whole $steps --local $workers --parallel "$1" ;;
    *) train whole $steps ;;
  esac || fail "whole: $(tail -3 whole.log)"
}

goes_on() { grep -q 'workers go on as' "$1.log" || ! kill -0 "$job" 2> /dev/null; }

# strike SEED PLAN FLAGS... : one run with a kill. Appends to times: seconds to the next step, seconds that the job says,
# steps that are done again, and the parts of those seconds: settled, plan, joined, programs, state.
strike() {
  local name=lost seed=$1 plan=$2 at victim left killed next told again gone parts
  RANDOM=$seed
  at=$((10 + RANDOM % (steps - 100)))
  victim=$((1 + RANDOM % workers))
  rm -f $name.*
  start train $name $steps --local $workers --parallel "$plan" "${@:3}"
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
  # A new process may have come in the place of the killed one, and what was left of its replica has no work.
  gone=$(comm -13 <(worker_ids | sort) <(sort <<< "$left") | wc -l)
  ! kill -0 "$job" 2> /dev/null || [ -z "$(worker_ids)" ] || [ "$gone" -le "$(spared "$plan")" ] ||
    fail "seed $seed: the workers that are left are others: $(worker_ids | xargs), not $(xargs <<< "$left")"
  wait "$shell" || fail "seed $seed: exit $? after the kill: $(tail -3 $name.log)"
  job=
  told=$(sed -n -E 's/^lost .* after ([0-9.]+) s: .*/\1/p' $name.log)
  [ -n "$told" ] || fail "seed $seed: nobody was lost"
  same $name whole
  again=$(sed -n -E 's/^lost .* ([0-9]+) steps? (is|are) done again.*/\1/p' $name.log)
  parts=$(sed -n -E 's/^lost .*\(settled ([0-9.]+) s.*plan ([0-9.]+) s.*, joined ([0-9.]+) s, programs ([0-9.]+) s, state ([0-9.]+) s\)$/\1 \2 \3 \4 \5/p' $name.log)
  [ -n "$parts" ] || fail "seed $seed: the job does not say where the time went: $(grep '^lost' $name.log)"
  grep -q '^lost .*(prepared)' $name.log && prepared=$((prepared + 1))
  [ -n "$told" ] && awk -v us=$((next - killed)) -v told="$told" -v again="${again:-0}" -v parts="$parts" \
    'BEGIN { print us / 1e6, told, again, parts }' >> times
  [ "$(sha256sum < whole.onnx)" = "$(sha256sum < $name.onnx)" ] && equal=$((equal + 1))
}
# spared PLAN : workers that a lost one of a replica takes with it.
spared() {
  case $1 in
    dp=2,*) echo 1 ;;
    *) echo 0 ;;
  esac
}
has_done_or_ended() { has_done "$1" "$2" || ! kill -0 "$job" 2> /dev/null; }

percentile() { sort -g -k "$1" times | awk -v p="$2" -v k="$1" '{ v[NR] = $k } END { i = int(NR * p / 100 + 0.999999); print NR ? v[i < 1 ? 1 : i] : "-" }'; }
line() { printf '%-44s %8s %8s %8s\n' "$1" "$(percentile "$2" 50)" "$(percentile "$2" 95)" "$(percentile "$2" 100)"; }
for way in "${ways[@]}"; do
  IFS=: read -ra flags <<< "$way"
  undisturbed "${flags[0]}"
  equal=0 prepared=0
  : > times
  for seed in $(seq "$first" $((first + kills - 1))); do
    before=$failures
    strike "$seed" "${flags[@]}"
    [ "$failures" -eq "$before" ] || echo "again: tests/faults/lost_worker_test.sh $1 1 $seed $way"
  done
  echo "$(wc -l < times) kills of one of $workers workers, ${flags[*]}, strict: $equal final SHA-256 equal"
  printf '%-44s %8s %8s %8s\n' seconds p50 p95 largest
  line "from the kill to the next committed step" 1
  line "of these: to bring the others to one step" 2
  line "steps that were done again" 3
  column=4
  for part in "all at one step" "plan and partitions" "joined the new job" "took its programs" "took the state"; do
    line "    $part" "$column"
    column=$((column + 1))
  done
  echo "the plan was prepared in $prepared of $(wc -l < times)"
  [ "$equal" -eq "$kills" ] || fail "$equal of $kills runs have the weights of the undisturbed one"
done
conclude "no step was lost, and none was told twice"
