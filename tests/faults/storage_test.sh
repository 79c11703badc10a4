#!/usr/bin/env bash
# Jobs whose disk fails while they save: training goes on, the last good checkpoint stays, and a job that goes on from
# it comes to the weights of an undisturbed one.
#   storage_test.sh GRAPH_RUNNER FAULTY_CALLS_LIBRARY [CASE...]
# WEFT_STRIDE: from one call of a save that is struck to the next one (1).
set -uo pipefail
runner=$1 library=$2
case $1 in /*) ;; *) runner=$PWD/$1 library=$PWD/$2 ;; esac
readonly stride=${WEFT_STRIDE:-1} steps=12
. tests/faults/job.sh
grep -q __asan_init "$runner" && skip "a program with AddressSanitizer takes no other library before its own"
own_world "$@"
trap 'exit 1' INT TERM
make_data 96
"$runner" example lenet -o model.onnx > /dev/null 2>&1 || fail "example lenet"
train whole $steps || fail "whole: $(tail -3 whole.log)"
train longer 600 || fail "longer: $(tail -3 longer.log)"

# The job saved into FOLDER goes on to the end as it would have.
resumes() { # CASE FOLDER STEPS WHOLE
  rm -f resumed.*
  train resumed "$3" --checkpoint "$2" --checkpoint-every 4 --resume || { fail "$1: does not resume: $(tail -2 resumed.log)"; return; }
  grep -q 'is damaged' resumed.log && fail "$1: a checkpoint that was named is damaged: $(cat resumed.log)"
  cmp -s resumed.onnx "$4.onnx" || fail "$1: the weights after --resume are others"
}
# each_call HOW : a run for each call that changes the folder of checkpoints, which strikes there.
each_call() {
  local call=0 struck=0 name=struck code
  while :; do
    rm -rf saved $name.* calls.log
    LD_PRELOAD=$library WEFT_FAULTY_FOLDER=$PWD/saved WEFT_FAULTY_CALL=$call WEFT_FAULTY_HOW=$1 \
      WEFT_FAULTY_LOG=$PWD/calls.log train $name $steps --checkpoint "$PWD/saved" --checkpoint-every 4 2> /dev/null
    code=$?
    [ -e calls.log ] || break
    struck=$((struck + 1))
    if [ "$1" = kill ]; then
      [ $code -eq 137 ] || fail "$1 at call $call ($(cat calls.log)): exit $code: $(tail -2 $name.log)"
    elif [ $code -eq 7 ] && [ "$(cat calls.log)" = mkdir ] && [ "$call" -eq 0 ]; then
      :  # the folder of checkpoints itself, found before the first step
    elif [ $code -ne 0 ]; then
      fail "$1 at call $call ($(cat calls.log)): exit $code: $(tail -2 $name.log)"
    else
      same $name whole
    fi
    resumes "$1 at call $call ($(cat calls.log))" "$PWD/saved" $steps whole
    call=$((call + stride))
  done
  echo "$1: struck $struck calls"
  [ $struck -ge $((15 / stride)) ] || fail "$1: only $struck calls were struck"
}
eio() { each_call eio; }
killed() { each_call kill; }

# A disk that has room for two checkpoints and is then full, three being kept.
full() {
  mkdir disk && mount -t tmpfs -o size=2m tmpfs disk || return
  train full 600 --checkpoint disk/saved --checkpoint-every 100 || fail "full: exit $?: $(tail -2 full.log)"
  same full longer
  grep -q '^warning: no checkpoint of step .*No space left on device.*; training goes on' full.log ||
    fail "full: no warning: $(cat full.log)"
  ls disk/saved | grep -q '^step-' || fail "full: no checkpoint is left: $(ls -a disk/saved)"
  echo "full: $(ls disk/saved | xargs) of $(du -sh disk/saved | cut -f 1)"
  mount -o remount,size=20m disk
  resumes full disk/saved 600 longer
  umount disk
  rmdir disk
}
# A disk that becomes read-only in mid-run.
read_only() {
  mkdir disk && mount -t tmpfs tmpfs disk || return
  train frozen 600 --checkpoint disk/saved --checkpoint-every 20 &
  local job=$!
  await 30 compgen -G 'disk/saved/step-*' > /dev/null || fail "read-only: nothing is saved"
  # Not while a file is being written.
  await 20 mount -o remount,ro disk 2> /dev/null || fail "read-only: the disk cannot be made so"
  wait $job || fail "read-only: exit $?: $(tail -2 frozen.log)"
  same frozen longer
  grep -q '^warning: no checkpoint of step .*Read-only file system.*; training goes on' frozen.log ||
    fail "read-only: no warning: $(cat frozen.log)"
  mount -o remount,rw disk
  resumes read-only disk/saved 600 longer
  umount disk
  rmdir disk
}

cases=("${@:3}")
[ ${#cases[@]} -gt 0 ] || cases=(eio killed full read_only)
for one in "${cases[@]}"; do "$one"; done
conclude "a disk that failed has cost checkpoints, and nothing else"
