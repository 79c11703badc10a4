#!/usr/bin/env bash
# Two real worker processes of which one becomes three times slower in mid-run: it is named within five steps with
# its factor, --rebalance moves micro-batches, steps become faster, and not one bit of the weights changes; neither
# when the job goes on from a checkpoint of the new shares.
#   rebalance_test.sh GRAPH_RUNNER PACED_LIBRARY
set -uo pipefail
runner=$PWD/$1
paced=$PWD/$2
. tests/faults/job.sh
workers=()
own_folder stop_workers
stop_workers() {
  [ ${#workers[@]} -gt 0 ] && kill "${workers[@]}" 2> /dev/null
  wait "${workers[@]}" 2> /dev/null
  workers=()
}

# worker NUMBER PACE : starts one that serves jobs; it listens on unix:NUMBER.
worker() {
  WEFT_TEST_PACE=$2 timeout 60 "$runner" worker --allow-path / --listen "unix:$PWD/$1" --op_library "$paced" 2> "worker$1.log" &
  workers+=($!)
}
# train NAME STEPS FLAGS... : metrics in NAME.csv, the model in NAME.onnx.
train() {
  local name=$1 steps=$2
  shift 2
  timeout 60 "$runner" train model.onnx --op_library "$paced" --data x=images.npy --labels labels.npy \
    --optimizer adam --lr 0.001 --batch 32 --steps "$steps" --strict --micro-batches 8 \
    --metrics "$name.csv" -o "$name.onnx" "$@" > "$name.log" 2>&1 || fail "$name: $(tail -3 "$name.log")"
}
# Median of the samples per second of the steps [first, last) of a run.
rate() { awk -F, -v f="$2" -v l="$3" 'NR > 1 && $1 >= f && $1 < l { print $4 }' "$1.csv" | sort -g |
  awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

make_data 128
cat > cluster.yaml <<YAML
hosts:
  - name: here
    workers:
      - {address: "unix:$PWD/0", threads: 1}
      - {address: "unix:$PWD/1", threads: 1}
YAML
"$runner" example swiglu --op_library "$paced" -o model.onnx > /dev/null 2>&1 || fail "example swiglu"

# Four micro-batches of 20 ms a step each; worker 1 takes 60 ms for each from its 61st on: that is in step 16.
worker 0 "20 0 1"
worker 1 "20 60 3"
train undisturbed 50
train balanced 40 --cluster cluster.yaml --parallel dp=2 --rebalance --checkpoint saved --checkpoint-every 100
slow=$(grep '^slow ' balanced.log | head -1)
echo "$slow"
[[ $slow =~ worker:1\ .*\ works\ ([0-9.]+)\ times\ slower\ than\ before,\ since\ step\ ([0-9]+),\ seen\ after\ step\ ([0-9]+) ]] ||
  fail "what is said of the slow worker: $slow"
factor=${BASH_REMATCH[1]:-0} since=${BASH_REMATCH[2]:-0} seen=${BASH_REMATCH[3]:-99}
awk -v f="$factor" 'BEGIN { exit !(f > 2.4 && f < 3.4) }' || fail "factor $factor, it was 3"
[ "$since" -ge 14 ] && [ "$since" -le 16 ] && [ "$seen" -le 20 ] || fail "slow since step $since, seen after step $seen; it was step 16"
moved=$(grep '^moved ' balanced.log)
echo "$moved"
[[ $moved =~ micro-batches\ 6:2\ instead\ of\ 4:4\ from\ step\ ([0-9]+)\ on ]] || fail "what is said of the shares: $moved"
on=${BASH_REMATCH[1]:-40}
[ "$on" -le 34 ] || fail "moved only from step $on on"

# Steps: 80 ms, then 240 ms, then 120 ms.
before=$(rate balanced 5 15) between=$(rate balanced 16 $((on - 1))) after=$(rate balanced "$on" 40)
echo "samples per second: $before before, $between while worker 1 was slow, $after after shares had moved"
awk -v b="$between" -v a="$after" 'BEGIN { exit !(a > 1.6 * b) }' || fail "steps did not become twice as fast"

# The job goes on with the shares that it had come to, and ends with the bits of a run on one worker.
grep -q 'shares: .6, 2.' saved/step-00000040/index.json || fail "no shares in the checkpoint"
train resumed 50 --cluster cluster.yaml --parallel dp=2 --rebalance --checkpoint saved --resume
cmp undisturbed.onnx resumed.onnx || fail "the weights are not those of an undisturbed run"
train short 40
cmp short.onnx balanced.onnx || fail "the weights are not those of an undisturbed run"
resumed_rate=$(rate resumed 41 50)
awk -v a="$after" -v r="$resumed_rate" 'BEGIN { exit !(r > 0.8 * a) }' || fail "resumed without the shares: $resumed_rate"

# Without the flag the worker is named all the same, with what the flag would do.
stop_workers
worker 0 "20 0 1"
worker 1 "20 40 3"
train named 18 --cluster cluster.yaml --parallel dp=2
grep -q '^slow .*worker:1 .*; --rebalance would split the 8 micro-batches 6:2' named.log || fail "$(cat named.log)"

conclude "the slow worker was named, and its work moved"
