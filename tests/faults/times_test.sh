#!/usr/bin/env bash
# Faults of processes within the times of the table of families (tests/README.md): who tells, who goes on, who ends.
#   times_test.sh GRAPH_RUNNER [CASE...]
# WEFT_SLACK: times are allowed to be so many times as long (3), as the machine may be busy.
set -uo pipefail
runner=$1
case $1 in /*) ;; *) runner=$PWD/$1 ;; esac
readonly slack=${WEFT_SLACK:-3} steps=400 endless=1000000
. tests/faults/job.sh
cd "$(mktemp -d /tmp/weft-times-XXXXXX)" || exit 1
export HOME=$PWD TMPDIR=$PWD  # where the job finds its token, and puts its sockets
job=
group=
memory_file=/dev/shm/weft-times-$$
clean_up() {
  [ -n "$job" ] && kill -9 "$job" 2> /dev/null  # its workers end with it
  [ -n "$group" ] && await 5 rmdir "$group" 2> /dev/null
  rm -rf "$PWD" "$memory_file"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
make_data 480
"$runner" example lenet -o model.onnx > /dev/null 2>&1 || fail "example lenet"
train whole $steps || fail "whole: $(tail -3 whole.log)"

# begin NAME STEPS FLAGS... : the job in the background; its coordinator is $job, its shell $shell.
begin() {
  rm -f "$1".*
  train "$@" &
  shell=$!
  job=
  await 60 is_started || fail "$1: does not start: $(tail -3 "$1.log")"
  await 60 has_done "$1" 10 || fail "$1: does not begin: $(tail -3 "$1.log")"
}
is_started() { job=$(pgrep -P "$shell" | head -1) && [ -n "$job" ]; }
worker_ids() { pgrep -P "$job" | sort -n; }
says() { grep -Eq "$2" "$1.log"; }
# ends NAME CODE
ends() {
  wait "$shell"
  local code=$?
  job=
  [ "$code" -eq "$2" ] || fail "$1: exit $code instead of $2: $(tail -3 "$1.log")"
}
# within SECONDS SINCE WHAT : not longer ago than that, with slack.
within() {
  local seconds
  seconds=$(seconds_since "$2")
  echo "$3 after $seconds s, $1 s are allowed"
  at_most "$seconds" "$(awk -v a="$1" -v b="$slack" 'BEGIN { print a * b }')" || fail "$3 after $seconds s"
}
# tells NAME PATTERN SECONDS SINCE
tells() {
  await 60 says "$1" "$2" || fail "$1: does not tell: $(tail -3 "$1.log")"
  within "$3" "$4" "$1: told"
}
# goes_on NAME SINCE SECONDS : a step that was done after the loss; then the end, with the bits of the undisturbed job.
goes_on() {
  local before
  before=$(rows "$1")
  await 60 has_done "$1" $((before + 1)) || fail "$1: no step comes: $(tail -3 "$1.log")"
  within "$3" "$2" "$1: a step"
  ends "$1" 0
  same "$1" whole
}

# Family 1.
one() {
  begin one $steps --local 4 --parallel dp=4
  local since=${EPOCHREALTIME/./}
  kill -9 "$(worker_ids | sed -n 2p)"
  tells one '^lost  .*; 3 of 4 workers go on|^lost  .* in its place' 1 "$since"
  goes_on one "$since" 10
}
# Family 2: two at once; both stages of one replica; both replicas of a stage, whose state only a checkpoint has; a stage
# whose state nobody has.
two_of_four() {
  begin two $steps --local 4 --parallel dp=4
  local since=${EPOCHREALTIME/./}
  kill -9 $(worker_ids | sed -n '2p;4p')
  tells two '^lost  ' 1 "$since"
  goes_on two "$since" 15
}
# Ranks of dp=2,pp=2 are (stage 0: 0, 1), (stage 1: 2, 3): of one replica 0 and 2.
whole_replica() {
  begin replica $steps --local 4 --parallel dp=2,pp=2,micro=4
  local since=${EPOCHREALTIME/./}
  kill -9 $(worker_ids | sed -n '1p;3p')
  await 60 says replica '^(lost|error:) ' || fail "replica: does not tell: $(tail -3 replica.log)"
  within 1 "$since" "replica: told"
  goes_on replica "$since" 15
}
whole_stage() {
  begin stage $steps --local 4 --parallel dp=2,pp=2,micro=4 --checkpoint saved --checkpoint-every 40
  await 60 compgen -G 'saved/step-*' > /dev/null || fail "stage: nothing is saved"
  local since=${EPOCHREALTIME/./}
  kill -9 $(worker_ids | sed -n '1p;2p')
  tells stage '^lost  .*worker:[01].* from checkpoint .*no sample is lost or repeated' 15 "$since"
  goes_on stage "$since" 15
}
no_stage() {
  begin gone $steps --local 2 --parallel pp=2,micro=4
  local since=${EPOCHREALTIME/./}
  kill -9 "$(worker_ids | sed -n 1p)"
  ends gone 138
  within 15 "$since" "gone: ended"
  says gone '^error: .*worker:0' || fail "gone: no worker is named: $(tail -2 gone.log)"
}
# Family 3.
coordinator() {
  begin coordinator $steps --local 3 --parallel dp=3 --checkpoint kept --checkpoint-every 40
  await 60 compgen -G 'kept/step-*' > /dev/null || fail "coordinator: nothing is saved"
  local workers since=${EPOCHREALTIME/./}
  workers=$(worker_ids)
  kill -9 "$job"
  await 30 all_gone "$workers" || fail "coordinator: orphans: $(ps -o pid=,args= -p "$(xargs <<< "$workers" | tr ' ' ,)")"
  within 2 "$since" "coordinator: its workers ended"
  wait "$shell" 2> /dev/null
  job=
  train continued $steps --local 3 --parallel dp=3 --checkpoint kept --checkpoint-every 40 --resume ||
    fail "coordinator: does not resume: $(tail -3 continued.log)"
  cmp -s continued.onnx whole.onnx || fail "coordinator: the weights are others"
}
all_gone() {
  local id
  for id in $1; do kill -0 "$id" 2> /dev/null && return 1; done
  return 0
}
# Family 4.
frozen() {
  begin frozen $steps --local 3 --parallel dp=3
  local since=${EPOCHREALTIME/./}
  kill -STOP "$(worker_ids | sed -n 2p)"
  tells frozen '^lost  .*a signal has stopped it' 5 "$since"
  goes_on frozen "$since" 10
}
# Family 5: once it saves and ends, twice it ends at once.
told_once() {
  begin once $endless --local 2 --parallel dp=2 --checkpoint once.saved --checkpoint-every 100000
  local since=${EPOCHREALTIME/./}
  kill -TERM "$job"
  ends once 11
  within 5 "$since" "once: ended"
  compgen -G 'once.saved/step-*' > /dev/null || fail "once: nothing is saved"
}
told_twice() {
  begin twice $endless --local 2 --parallel dp=2
  local workers since=${EPOCHREALTIME/./}
  workers=$(worker_ids)
  kill -STOP $workers  # so that it cannot end well
  kill -TERM "$job"
  sleep 0.2  # two that wait to be delivered are one
  kill -TERM "$job"
  ends twice 143
  within 5 "$since" "twice: ended"
  await 10 all_gone "$workers" || fail "twice: orphans"
}
# Family 7: the system ends a worker for want of memory. Another process of its control group takes all of it, and the
# worker is the one that the system is to choose. As root alone.
no_memory() {
  make_memory_group 2> /dev/null || { group= && echo "skipped: no_memory: no control group of memory can be made (root?)" && return; }
  begin memory $steps --local 3 --parallel dp=3
  local victim since
  victim=$(worker_ids | sed -n 2p)
  echo 1000 > "/proc/$victim/oom_score_adj"
  echo "$victim" > "$group/cgroup.procs"
  since=${EPOCHREALTIME/./}
  # A file in memory, so that the process that takes it stays small, and the worker is the larger one.
  (echo "$BASHPID" > "$group/cgroup.procs" && exec head --bytes=300M /dev/zero > "$memory_file") &
  local eater=$!
  await 30 all_gone "$victim" || fail "memory: the system has not ended worker $victim"
  since=${EPOCHREALTIME/./}
  tells memory '^lost  .*for want of memory.*--batch' 1 "$since"
  kill -9 $eater 2> /dev/null
  wait $eater 2> /dev/null
  rm -f "$memory_file"
  goes_on memory "$since" 10
}
# A group below this process's own, of version 1 or 2, with 256 MiB.
make_memory_group() {
  local mount path
  [ "$(id -u)" -eq 0 ] || return 1
  mount=$(sed -n -E 's/^([^ ]+ ){4}([^ ]+) .* - cgroup [^ ]+ ([^ ]+,)?memory(,.*)?$/\2/p' /proc/self/mountinfo | head -1)
  if [ -n "$mount" ]; then
    path=$(sed -n -E 's/^[0-9]+:([^:]*,)?memory(,[^:]*)?:(.*)$/\3/p' /proc/self/cgroup)
  else
    mount=$(sed -n -E 's/^([^ ]+ ){4}([^ ]+) .* - cgroup2 .*$/\2/p' /proc/self/mountinfo | head -1)
    path=$(sed -n -E 's/^0::(.*)$/\1/p' /proc/self/cgroup)
    [ -n "$mount" ] && echo +memory > "$mount${path%/}/cgroup.subtree_control"
  fi
  [ -n "$mount" ] && mkdir "$mount${path%/}/weft-times-$$" || return 1
  group=$mount${path%/}/weft-times-$$
  if [ -e "$group/memory.max" ]; then
    echo 256M > "$group/memory.max" && { [ ! -e "$group/memory.swap.max" ] || echo 0 > "$group/memory.swap.max"; }
  else
    echo 268435456 > "$group/memory.limit_in_bytes"
  fi || { rmdir "$group" && return 1; }
}

cases=("${@:2}")
[ ${#cases[@]} -gt 0 ] || cases=(one two_of_four whole_replica whole_stage no_stage coordinator frozen told_once told_twice no_memory)
for one_case in "${cases[@]}"; do "$one_case"; done
conclude "who was lost was told in time"
