#!/usr/bin/env bash
# Training jobs on real processes that are killed, stopped, damaged and resumed: the exported weights are those of
# a run that nobody disturbed, byte for byte. WEFT_KILLS says how many kills (3).
#   checkpoints_test.sh GRAPH_RUNNER
set -uo pipefail
runner=$PWD/$1
kills=${WEFT_KILLS:-3}
. tests/faults/job.sh
own_folder

make_data 320
"$runner" example mlp -o model.onnx > /dev/null 2>&1 || fail "example mlp"

# run NAME STEPS FLAGS... : the model in NAME.onnx, what was said in NAME.log; the exit code.
run() {
  local name=$1 steps=$2
  shift 2
  "$runner" train model.onnx --data x=images.npy --labels labels.npy --optimizer adam --batch 32 \
    --steps "$steps" -o "$name.onnx" "$@" > "$name.log" 2>&1
}
expect() { # NAME STEPS FLAGS... : run, which must end well
  run "$@" || fail "$1: exit $?: $(tail -3 "$1.log")"
}
same() { cmp -s "$1.onnx" "$2.onnx" || fail "the weights of $1 and $2 differ"; }
newest() { ls "$1" 2> /dev/null | sed -n 's/^step-0*\([0-9][0-9]*\)$/\1/p' | tail -1; }

# Ends once folder $1 has a checkpoint of step $2 or a later one; then, if $4, once one is being written. Not after
# the end of process $3.
await_step() {
  while kill -0 "$3" 2> /dev/null; do
    [ "$(newest "$1")" -ge "$2" ] 2> /dev/null && break
  done
  while $4 && kill -0 "$3" 2> /dev/null; do
    compgen -G "$1/.step-*.tmp" > /dev/null && break
  done
}
has_ended() { ! kill -0 "$@" 2> /dev/null; }

# ---- kill -9 of worker and coordinator at seeded points, every third one while a checkpoint is written.
RANDOM=4711
steps=$((300 + 60 * kills))
for workers in 1 2; do
  expect "whole$workers" "$steps" --local "$workers" --parallel "dp=$workers"
done
killed_in_write=0
for kill in $(seq "$kills"); do
  workers=$((1 + kill % 2))
  saved=saved$workers
  begin=$(newest "$saved")
  at=$((${begin:-0} + 5 + RANDOM % 40))
  writing=false
  [ $((kill % 3)) -eq 0 ] && writing=true
  start run "killed" "$steps" --local "$workers" --parallel "dp=$workers" --on-loss stop --checkpoint "$saved" \
    --checkpoint-every 5 --resume
  await_step "$saved" "$at" "$shell" "$writing"
  mapfile -t processes < <(pgrep -P "$job")
  victim=$job
  [ $((kill % 4)) -lt 2 ] && victim=${processes[$((RANDOM % workers))]:-$job}
  if kill -9 "$victim" 2> /dev/null; then
    $writing && killed_in_write=$((killed_in_write + 1))
  else
    fail "kill $kill: nothing was left to kill at step $at: $(tail -3 killed.log)"
  fi
  wait "$shell" && fail "kill $kill: exit 0 although a process was killed"
  for process in "${processes[@]}"; do
    await 10 has_ended "$process" || fail "kill $kill: worker $process is left"
  done
  [ -e killed.onnx ] && fail "kill $kill: a model was written"
  echo "kill $kill: $workers workers, $([ "$victim" = "$job" ] && echo coordinator || echo worker) at step $at or later$(
    $writing && echo ', while a checkpoint was written'), $(newest "$saved") was the newest"
done
for workers in 1 2; do
  expect "resumed$workers" "$steps" --local "$workers" --parallel "dp=$workers" --checkpoint "saved$workers" --resume
  same "resumed$workers" "whole$workers"
  compgen -G "saved$workers/.step-*" > /dev/null && fail "saved$workers holds a half-written checkpoint"
done
echo "$kills kills, $killed_in_write while a checkpoint was written"

# ---- SIGTERM: the step ends, its state is saved, the model is written, exit code 11.
expect whole 400
expect longer 4000
start run stopped 4000 --checkpoint stopped --checkpoint-every 50
await_step stopped 50 "$shell" false
kill -TERM "$job"
wait "$shell"
code=$?
if [ "$code" -eq 11 ]; then
  grep -q '^stopped by SIGTERM after step [0-9]* of 4000$' stopped.log || fail "does not say so: $(cat stopped.log)"
  [ -e stopped.onnx ] || fail "no model after SIGTERM"
else
  fail "exit $code after SIGTERM: $(tail -3 stopped.log)"
fi
expect continued 4000 --checkpoint stopped --resume
same continued longer

# ---- SIGUSR1: saved between two steps, and the job goes on. SIGHUP: as SIGTERM.
start run asked 1000000 --checkpoint asked --checkpoint-every 1000 --keep 1000
await_step asked 1000 "$shell" false
kill -USR1 "$job"
odd() { compgen -G 'asked/step-*' | grep -v '000$'; }
await 5 odd > /dev/null || fail "SIGUSR1 saved nothing: $(ls asked)"
kill -HUP "$job"
wait "$shell"
code=$?
[ "$code" -eq 11 ] || fail "exit $code after SIGHUP: $(tail -3 asked.log)"
grep -q '^stopped by SIGHUP after step [0-9]* of 1000000$' asked.log || fail "does not say so: $(cat asked.log)"

# ---- Damage is found, and the one before is taken.
expect damaged 200 --checkpoint damaged --checkpoint-every 50
printf '\xff' | dd of=damaged/step-00000200/rank-00000.safetensors bs=1 seek=200000 conv=notrunc 2> /dev/null
truncate -s 100000 damaged/step-00000150/rank-00000.safetensors
"$runner" ckpt verify damaged > verify.log 2>&1
code=$?
[ "$code" -eq 7 ] || fail "ckpt verify: exit $code"
grep -q "step-00000200/rank-00000.safetensors.* is damaged: the contents of tensor '" verify.log ||
  fail "ckpt verify does not name file and tensor: $(cat verify.log)"
expect repaired 400 --checkpoint damaged --resume
grep -q '^resume step 100 of ' repaired.log || fail "not resumed from the last good one: $(head -5 repaired.log)"
[ "$(grep -c '^warning: the checkpoint of step .* is damaged' repaired.log)" -eq 2 ] || fail "damage is not told"
same repaired whole

# ---- A checkpoint of four workers goes on with one, two and three.
expect strict 40 --strict --local 1
expect four 20 --strict --local 4 --parallel dp=4 --checkpoint four --checkpoint-every 10
for workers in 1 2 3; do
  cp -r four "four$workers"
  expect "from4to$workers" 40 --strict --local "$workers" --parallel "dp=$workers" --checkpoint "four$workers" --resume
  same "from4to$workers" strict
done

# ---- Another job is refused, with what differs; so is a folder that is in use.
run other 400 --checkpoint four --resume --lr 0.5 && fail "another job was resumed"
grep -q 'error: --resume: .*--lr was not given, is 0.5' other.log || fail "no difference: $(cat other.log)"
run again 400 --checkpoint four && fail "a used folder was taken"
grep -q 'error: --checkpoint four has checkpoints up to step 20; give --resume' again.log || fail "$(cat again.log)"

# ---- ckpt: list, diff, export.
"$runner" ckpt list damaged > list.log 2>&1 || fail "ckpt list: $(cat list.log)"
grep -q 'step-00000400  step 400, .* tensors in 1 files, dp=1' list.log || fail "ckpt list: $(cat list.log)"
"$runner" ckpt export damaged model.onnx -o exported.onnx > export.log 2>&1 || fail "ckpt export: $(cat export.log)"
same exported whole
"$runner" ckpt diff damaged/step-00000100 damaged > diff.log 2>&1
[ $? -eq 1 ] || fail "ckpt diff: $(cat diff.log)"
grep -q '^step 100 and step 400: .* tensors differ$' diff.log || fail "ckpt diff: $(cat diff.log)"
"$runner" ckpt diff damaged damaged > diff.log 2>&1 || fail "ckpt diff of the same: $(cat diff.log)"

# ---- A place that nothing can be written to is found before training, not after it.
: > file
run nowhere 400 --checkpoint file/folder --checkpoint-every 200
code=$?
[ "$code" -eq 7 ] || fail "exit $code for a folder of checkpoints that cannot be made"
grep -q '^error: --checkpoint: .*/file"' nowhere.log || fail "no reason: $(cat nowhere.log)"
grep -q ' step [0-9]*/400' nowhere.log && fail "trained without a place for checkpoints: $(cat nowhere.log)"
"$runner" train model.onnx --data x=images.npy --labels labels.npy --steps 400 -o none/lost.onnx > lost.log 2>&1
code=$?
[ "$code" -eq 7 ] || fail "exit $code for a model that cannot be written"
grep -q '^error: .*none/lost.onnx' lost.log || fail "no reason: $(cat lost.log)"
grep -q ' step [0-9]*/400' lost.log && fail "trained without a place for the model: $(cat lost.log)"

# ---- A disk that is full later stops nothing but the checkpoint.
mkdir full
if mount -t tmpfs -o size=512k tmpfs full 2> /dev/null; then
  expect full 400 --checkpoint full/saved --checkpoint-every 100
  umount full
  grep -q '^warning: no checkpoint of step 100: .*No space left on device.*; training goes on' full.log ||
    fail "no warning of a full disk: $(cat full.log)"
  same full whole
else
  echo "SKIPPED: a full disk needs a tmpfs, which needs root; checkpointer_test has it as a fault"
fi

# ---- Evaluation within the job changes no weight; rules end it; the best model is kept.
expect evaluated 400 --eval-every 100 --eval-data x=images.npy --eval-labels labels.npy --best best.onnx
[ "$(grep -c '^eval   step .*: accuracy .*, loss ' evaluated.log)" -eq 4 ] || fail "evaluations: $(cat evaluated.log)"
same evaluated whole
[ -e best.onnx ] || fail "no best model"
expect until 400 --local 2 --parallel dp=2 --eval-every 20 --eval-data x=images.npy --eval-labels labels.npy --until 'loss<9'
grep -q '^ended early, loss<9: it is ' until.log || fail "the rule did not end it: $(cat until.log)"

conclude "every resumed job gave what an undisturbed one gives"
