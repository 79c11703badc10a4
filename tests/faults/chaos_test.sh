#!/usr/bin/env bash
# graph_runner chaos: a strict job keeps its bits under each kind of fault; a job that comes to something else is
# found, with the command that finds it again; nothing is left behind, also when chaos is told to end.
#   chaos_test.sh GRAPH_RUNNER [CASE...]
# WEFT_SCHEDULES: of each list of faults (2). WEFT_FIRST_SEED: the first seed (1).
set -uo pipefail
runner=$1
case $1 in /*) ;; *) runner=$PWD/$1 ;; esac
readonly schedules=${WEFT_SCHEDULES:-2} first=${WEFT_FIRST_SEED:-1}
. tests/faults/job.sh
cd "$(mktemp -d /tmp/weft-chaos-test-XXXXXX)" || exit 1
export HOME=$PWD TMPDIR=$PWD/place
mkdir "$TMPDIR"
chaos=
clean_up() {
  [ -n "$chaos" ] && kill -9 "$chaos" 2> /dev/null
  rm -rf "$PWD"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
make_data 480
"$runner" example lenet -o model.onnx > /dev/null 2>&1 || fail "example lenet"

job=(train model.onnx --data x=images.npy --labels labels.npy --optimizer adam --lr 0.001 --batch 48 --steps 300 --strict)
left_behind() { pgrep -f "$TMPDIR" || [ -n "$(ls -A "$TMPDIR")" ]; }
# holds NAME FLAGS... -- FLAGS OF THE JOB... : every schedule holds, and leaves nothing.
holds() {
  local name=$1
  shift
  "$runner" chaos --seed "$first" --schedules "$schedules" "$@" > "$name.txt" 2> "$name.log" ||
    fail "$name: exit $?: $(cat "$name.txt" "$name.log")"
  cat "$name.txt"
  grep -q '^note:' "$name.log" && grep '^note:' "$name.log"
  left_behind && fail "$name: something is left: $(pgrep -af "$TMPDIR"; ls -A "$TMPDIR")"
}

workers() { holds workers --faults kill,stop,leave,quota -- "${job[@]}" --local 3 --parallel dp=3; }
disk() { holds disk --faults disk -- "${job[@]}" --local 2 --parallel dp=2 --checkpoint-every 5 --checkpoint mine; }
coordinator() { holds coordinator --faults coordinator,interrupt -- "${job[@]}" --local 2 --parallel dp=2; }
connections() { holds connections --faults cut,reset,flip -- "${job[@]}" --local 3 --parallel dp=3; }
stages() { holds stages --faults kill -- "${job[@]}" --local 2 --parallel pp=2,micro=4; }
copies() { holds copies --faults kill,leave -- "${job[@]}" --local 3 --parallel dp=3,zero=2 --replicate every=10; }
alone() { holds alone --faults kill,coordinator -- "${job[@]}"; }

# A job whose result is another: here the truth is that of fewer steps.
planted() {
  train other 290 || fail "planted: $(tail -3 other.log)"
  local truth code
  truth=$(sha256sum < other.onnx)
  "$runner" chaos --seed 3 --faults kill --expect "${truth%% *}" -- "${job[@]}" --local 2 --parallel dp=2 \
    > planted.txt 2> planted.log
  code=$?
  [ $code -eq 1 ] || fail "planted: exit $code: $(cat planted.txt planted.log)"
  grep -q "WRONG: the model has SHA-256 .* instead of ${truth%% *}" planted.txt || fail "planted: $(cat planted.txt)"
  # The command that was printed finds it again.
  sed -n 's/^  again: graph_runner //p' planted.txt > again.txt
  grep -q '^chaos --seed 3 --faults kill --expect ' again.txt || fail "planted: no command: $(cat planted.txt)"
  xargs "$runner" < again.txt > again.log 2>&1
  [ "$(grep -c 'WRONG: the model has SHA-256' again.log)" -eq 1 ] || fail "planted: not found again: $(cat again.log)"
  left_behind && fail "planted: something is left: $(pgrep -af "$TMPDIR"; ls -A "$TMPDIR")"
}

# Told to end in the middle, it takes all with it.
ended() {
  "$runner" chaos --seed 1 --faults stop -- "${job[@]/300/1000000}" --local 3 --parallel dp=3 > ended.txt 2> ended.log &
  chaos=$!
  await 60 pgrep -f "worker .*$TMPDIR" > /dev/null || fail "ended: no worker: $(cat ended.log)"
  kill -INT $chaos
  wait $chaos
  local code=$?
  chaos=
  [ $code -eq 11 ] || fail "ended: exit $code: $(cat ended.log)"
  left_behind && fail "ended: something is left: $(pgrep -af "$TMPDIR"; ls -A "$TMPDIR")"
}

# What it cannot do is a usage error.
refused() {
  local code
  "$runner" chaos --seed 1 -- train model.onnx --cluster none.yaml --data x=images.npy --labels labels.npy --steps 9 \
    > refused.txt 2> refused.log
  code=$?
  [ $code -eq 2 ] && grep -q 'give the job --local N instead of --cluster' refused.log ||
    fail "refused: exit $code: $(cat refused.log)"
  "$runner" chaos --seed 1 --faults kill -- "${job[@]}" > refused.txt 2> refused.log
  code=$?
  [ $code -eq 2 ] && grep -q 'none of these faults can befall the job: kill' refused.log ||
    fail "refused: exit $code: $(cat refused.log)"
  left_behind && fail "refused: something is left"
}

cases=("${@:2}")
[ ${#cases[@]} -gt 0 ] || cases=(workers disk coordinator connections stages copies alone planted ended refused)
for one in "${cases[@]}"; do
  began=${EPOCHREALTIME/./}
  "$one"
  echo "$one: $(seconds_since "$began") s"
done
conclude "chaos has found what was wrong, and nothing else"
