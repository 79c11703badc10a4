#!/usr/bin/env bash
# The coordinator of a strict job on two workers is killed, or stopped, at seeded moments: `train --resume` goes on from
# the workers' memory. Weights and losses are those of a run that nobody has disturbed, and no step is lost or repeated.
# Prints how long that takes.
#   takeover_test.sh GRAPH_RUNNER [KILLS [FIRST_SEED]]
# KILLS is 3; WEFT_KILLS and WEFT_FIRST_SEED say it, too.
set -uo pipefail
runner=$1
case $1 in /*) ;; *) runner=$PWD/$1 ;; esac
readonly kills=${2:-${WEFT_KILLS:-3}} first=${3:-${WEFT_FIRST_SEED:-1}} steps=600 workers=2
. tests/faults/job.sh
cd "$(mktemp -d)" || exit 1
export HOME=$PWD  # where workers and jobs find their token
pids=()
jobs_left=()
clean_up() {
  kill -9 "${jobs_left[@]}" "${pids[@]}" 2> /dev/null
  wait 2> /dev/null
  rm -rf "$PWD"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

make_data 480
"$runner" example lenet -o model.onnx > /dev/null 2>&1 || fail "example lenet"
train whole $steps || fail "whole: $(tail -3 whole.log)"

# start_worker NAME KEEP : one more; `address` is its own.
listens() { grep -q '^listening on ' "$1"; }
start_worker() {
  rm -f "worker$1.log"  # of the worker before
  "$runner" worker --listen 127.0.0.1:0 --allow-path / --keep-state "$2" 2> "worker$1.log" &
  pids+=($!)
  await 30 listens "worker$1.log" || fail "worker $1 does not listen: $(cat "worker$1.log")"
  address=$(sed -n 's/^listening on //p' "worker$1.log")
}
# add_workers KEEP : the job's workers, and their cluster file.
add_workers() {
  printf 'hosts:\n  - name: here\n    workers:\n' > cluster.yaml
  local i
  for i in $(seq $workers); do
    start_worker "$i" "$1"
    printf '      - {address: "%s", threads: 1}\n' "$address" >> cluster.yaml
  done
}
# start_workers KEEP : new ones instead of those before.
start_workers() {
  kill "${pids[@]}" 2> /dev/null
  wait "${pids[@]}" 2> /dev/null
  pids=()
  add_workers "$1"
}

# begin NAME FLAGS... : the job in the background, as process `job`.
length=$steps
begin() {
  train "$1" "$length" --cluster cluster.yaml --parallel dp=$workers --checkpoint saved --checkpoint-every 100 "${@:2}" &
  shell=$!
  job=
  until job=$(pgrep -P "$shell" | head -1) && [ -n "$job" ] || ! kill -0 "$shell" 2> /dev/null; do :; done
  jobs_left=("${job:-$shell}")
}
says() { grep -Eq "$2" "$1.log" 2> /dev/null; }
says_or_ended() { says "$1" "$2" || ! kill -0 "$shell" 2> /dev/null; }
has_done_or_ended() { has_done "$1" "$2" || ! kill -0 "$shell" 2> /dev/null; }
# await_save STEP : until a checkpoint is being written; not after the step. Without a pause, for that is short.
await_save() {
  until compgen -G 'saved/.step-*.tmp' > /dev/null || has_done_or_ended lost "$1"; do :; done
}
whole_steps() { # NAME : one row for each step
  [ "$(cut -d, -f1 "$1.csv" | tail -n +2 | xargs)" = "$(seq 0 $((steps - 1)) | xargs)" ] ||
    fail "$1: rows are lost or repeated: $(cut -d, -f1 "$1.csv" | tail -n +2 | awk 'NR - 1 != $1' | head -3 | xargs)"
}

# strike SEED : one run whose coordinator is killed, twice. Appends "seconds to the line, to the next step" to times.
strike() {
  local seed=$1 at told done_before since round
  RANDOM=$seed
  start_workers 60
  rm -rf saved lost.*
  begin lost
  for round in 1 2; do
    at=$((5 + (round - 1) * steps / 2 + RANDOM % (steps / 2 - 60)))
    await 60 has_done_or_ended lost "$at"
    if [ $((seed % 3)) -eq 0 ] && [ $round -eq 1 ]; then await_save $((steps / 2 + 150)); fi
    sleep "0.00$((RANDOM % 10))"
    kill -9 "$job" 2> /dev/null || fail "seed $seed: nothing to kill at step $at: $(tail -3 lost.log)"
    wait "$shell"
    [ -e lost.onnx ] && fail "seed $seed: a model was written"
    done_before=$(rows lost)
    since=${EPOCHREALTIME/./}
    begin lost --resume
    await 20 says_or_ended lost '^resume step [0-9]+ from the memory of '
    told=$(seconds_since "$since")
    says lost "^resume step [0-9]+ from the memory of $workers workers, whose coordinator was lost, .*none of its steps is lost$" ||
      fail "seed $seed: not from memory: $(grep -E '^(resume|note|error)' lost.log)"
    local from
    from=$(sed -n -E 's/^resume step ([0-9]+) from the memory .*/\1/p' lost.log)
    [ "${from:-0}" -ge "$done_before" ] || fail "seed $seed: goes on from step $from, and $done_before were told"
    await 20 has_done_or_ended lost $((${from:-0} + 1))
    echo "$told $(seconds_since "$since")" >> times
  done
  wait "$shell" || fail "seed $seed: exit $? after the kills: $(tail -3 lost.log)"
  same lost whole
  whole_steps lost
  local pid
  for pid in "${pids[@]}"; do kill -0 "$pid" 2> /dev/null || fail "seed $seed: worker $pid has ended"; done
  [ "$(sha256sum < whole.onnx)" = "$(sha256sum < lost.onnx)" ] && equal=$((equal + 1))
  compgen -G 'saved/.step-*' > /dev/null && fail "seed $seed: a checkpoint is half written"
}

equal=0
: > times
for seed in $(seq "$first" $((first + kills - 1))); do
  before=$failures
  strike "$seed"
  [ "$failures" -eq "$before" ] || echo "again: tests/faults/takeover_test.sh $1 1 $seed"
done
percentile() { sort -g -k "$1" times | awk -v p="$2" -v k="$1" '{ v[NR] = $k } END { i = int(NR * p / 100 + 0.999999); print NR ? v[i < 1 ? 1 : i] : "-" }'; }
echo "$(wc -l < times) coordinators killed, dp=$workers, strict: $equal of $kills final SHA-256 equal"
printf '%-44s %8s %8s %8s\n' "seconds from the start of train --resume" p50 p95 largest
printf '%-44s %8s %8s %8s\n' "until it has taken over" "$(percentile 1 50)" "$(percentile 1 95)" "$(percentile 1 100)"
printf '%-44s %8s %8s %8s\n' "until its next step is told" "$(percentile 2 50)" "$(percentile 2 95)" "$(percentile 2 100)"
[ "$equal" -eq "$kills" ] || fail "$equal of $kills runs have the weights of the undisturbed one"

# ---- A spare has taken the place of a lost worker. Then coordinator and worker are lost: the spare alone has the state.
spare_line() { printf '      - {address: "%s", threads: 1, role: spare}\n' "$spare" >> cluster.yaml; }
start_workers 60
first_worker=${pids[0]} second_worker=${pids[1]}
start_worker spare 60
spare=$address spare_worker=${pids[2]}
spare_line
rm -rf saved spared.*
begin spared
await 60 has_done_or_ended spared 10
kill -9 "$second_worker"
await 20 says_or_ended spared '^lost  .* in its place'
says spared '^lost  .*; 2 of 2 workers go on as dp=2 .* in its place' || fail "spared: $(tail -3 spared.log)"
await 20 has_done_or_ended spared $(($(rows spared) + 20))
kill -9 "$job" "$first_worker"
wait "$shell" "$first_worker" "$second_worker" 2> /dev/null
told=$(rows spared)
pids=("$spare_worker")
add_workers 60
spare_line
begin spared --resume
await 30 says_or_ended spared '^resume step [0-9]+ from the memory of '
says spared '^resume step [0-9]+ from the memory of .*copies in the memory of 1 worker' ||
  fail "spared: not from the spare's memory: $(grep -E '^(resume|note|error)' spared.log)"
from=$(sed -n -E 's/^resume step ([0-9]+) from the memory .*/\1/p' spared.log)
[ "${from:-0}" -ge "$told" ] || fail "spared: goes on from step $from, and $told were told"
wait "$shell" || fail "spared: exit $?: $(tail -3 spared.log)"
same spared whole
whole_steps spared

# ---- Another job is refused while the state is kept, and taken when its time is over.
start_workers 8
rm -rf saved
begin killed
await 60 has_done_or_ended killed 10
kill -9 "$job"
wait "$shell"
free() { train other 2 --cluster cluster.yaml --parallel dp=$workers; }
free && fail "another job has taken the workers"
says other '^error: .*keeps the state of another job, whose coordinator \(epoch 1\) was lost' || fail "other: $(tail -1 other.log)"
await 30 free || fail "the state is not given up: $(tail -1 other.log)"

# ---- A second coordinator is refused while the first one lives; of a stopped one it is the successor.
start_workers 60
rm -rf saved first.* second.*
length=1000000
begin first
await 60 has_done_or_ended first 10
train second $length --cluster cluster.yaml --parallel dp=$workers --checkpoint saved --checkpoint-every 100 --resume
code=$?
[ $code -eq 4 ] || fail "second: exit $code: $(tail -2 second.log)"
says second ', epoch 1\), so one of epoch 2 is refused' || fail "second: the epochs are not told: $(tail -1 second.log)"
kill -TERM "$job" || fail "the first job has ended: $(tail -3 first.log)"
wait "$shell"
code=$?
[ $code -eq 11 ] || fail "first: exit $code instead of 11: $(tail -2 first.log)"
says first '^warning' && fail "first: $(grep '^warning' first.log)"
length=$steps

start_workers 60
rm -rf saved first.* second.*
begin first
first_shell=$shell first_job=$job
await 60 has_done_or_ended first 120
kill -STOP "$first_job"
begin second --resume
jobs_left+=("$first_job")
await 30 says_or_ended second '^resume step [0-9]+ from the memory of '
says second '^resume step [0-9]+ from the memory of ' || fail "second: $(tail -3 second.log)"
await 20 has_done_or_ended second $((steps / 2))
kill -CONT "$first_job"
wait "$first_shell"
code=$?
[ $code -eq 9 ] || fail "the stopped coordinator: exit $code instead of 9: $(tail -2 first.log)"
says first '^error: .*this coordinator has a successor: its epoch is 1, and .*of epoch 2' || fail "first: $(tail -1 first.log)"
[ -e first.onnx ] && fail "the stopped coordinator has written a model"
wait "$shell" || fail "second: exit $? : $(tail -3 second.log)"
cmp -s second.onnx whole.onnx || fail "the weights of the successor are others"
conclude "no step was lost or repeated, and one coordinator has won"
