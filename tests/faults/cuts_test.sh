#!/usr/bin/env bash
# Three workers and their job on four machines (network namespaces) with keys, whose network fails in every way that
# networks do: who is cut off is named within 5 s, and the job goes on without it, or ends by name; what is short or
# merely slow is ridden out. In each case that goes on, weights and losses are those of one process.
#   cuts_test.sh GRAPH_RUNNER [CASE...]
set -uo pipefail
runner=$PWD/${1#"$PWD/"}
case $1 in /*) runner=$1 ;; esac
. tests/faults/job.sh
. tests/faults/network.sh
PATH=$PATH:/usr/sbin:/sbin
command -v ip > /dev/null && command -v tc > /dev/null || skip "there is no ip or tc (Debian's iproute2)"
command -v iptables > /dev/null || skip "there is no iptables (Debian's iptables)"
own_world "$@"
trap 'exit 1' INT TERM
readonly steps=240 within=5
machines=(alpha beta gamma)
make_network job "${machines[@]}" 2> network.log || skip "no network can be made: $(tail -1 network.log)"
rule -m statistic --mode random --probability 0 -j DROP 2> network.log || skip "iptables cannot lose packets: $(tail -1 network.log)"
reset_from alpha beta 2> network.log || skip "iptables cannot reset: $(tail -1 network.log)"
heal

make_data 480
"$runner" example mlp -o model.onnx > /dev/null 2>&1 || fail "example mlp"
hosts=()
for name in "${machines[@]}"; do hosts+=("$name=${address[$name]}"); done
"$runner" cluster keys --out keys --hosts "$(IFS=, && echo "${hosts[*]}")" > keys.log 2>&1 || fail "keys: $(cat keys.log)"
echo "hosts:" > cluster.yaml
declare -A pid=()
for name in "${machines[@]}"; do
  printf '  - name: %s\n    workers: [{address: "%s:4000", threads: 1}]\n' "$name" "${address[$name]}" >> cluster.yaml
  on "$name" "$runner" worker --listen "${address[$name]}:4000" --keys "keys/$name" --allow-path / 2> "$name.log" &
  pid[$name]=$!
done
train whole $steps || fail "whole: $(tail -3 whole.log)"
train short 3 || fail "short: $(tail -3 short.log)"
before_train=(ip netns exec job)

# begin NAME STEPS FLAGS... : the job in the background, which has done some steps when this returns.
begin() {
  train "$@" --cluster cluster.yaml --keys keys/coordinator --parallel dp=3 &
  job=$!
  await 30 has_done "$1" 10 || fail "$1: does not begin: $(tail -3 "$1.log")"
}
end() { # NAME CODE
  wait "$job"
  local code=$?
  [ "$code" -eq "$2" ] || fail "$1: exit $code instead of $2: $(tail -3 "$1.log")"
}
says() { grep -Eq "$2" "$1.log"; }
# is_lost NAME MACHINE SINCE : the job says within the time that the machine is lost, and goes on.
is_lost() {
  await 15 says "$1" '^(lost|error:) ' || fail "$1: nobody is lost after 15 s"
  local seconds
  seconds=$(seconds_since "$3")
  echo "$1: told after $seconds s: $(grep -Eo '^(lost|error:) .*' "$1.log" | cut -c 1-200)"
  at_most "$seconds" $within || fail "$1: told after $seconds s"
}
# goes_on NAME MACHINE SINCE : the job loses that machine alone, and comes to the same bits without it.
goes_on() {
  is_lost "$1" "$2" "$3"
  end "$1" 0
  says "$1" "^lost  .*${address[$2]}:4000.*; 2 of 3 workers go on" || fail "$1: $2 is not named: $(grep '^lost' "$1.log")"
  same "$1" whole
}
# is_whole NAME WHOLE : the job ends well, and has lost nobody.
is_whole() {
  end "$1" 0
  says "$1" '^lost ' && fail "$1: a loss without a cause: $(grep '^lost' "$1.log")"
  same "$1" "$2"
}
# All workers take the next job: whoever was cut off has given up the last one.
mend() {
  heal
  for name in "${machines[@]}"; do
    link_up "$name"
    kill -0 "${pid[$name]}" 2> /dev/null || fail "$1: worker $name has ended: $(cat "$name.log")"
  done
  await 20 is_free || fail "$1: the workers do not take another job: $(tail -2 free.log)"
}
is_free() { train free 2 --cluster cluster.yaml --keys keys/coordinator --parallel dp=3; }

both_ways() {
  begin cut $steps
  local since=${EPOCHREALTIME/./}
  cut_from gamma && cut_to gamma
  goes_on cut gamma "$since"
  mend cut
}
its_words() { # what one machine says comes to nobody
  begin mute $steps
  local since=${EPOCHREALTIME/./}
  cut_from beta
  goes_on mute beta "$since"
  mend mute
}
its_ears() { # nothing comes to one machine
  begin deaf $steps
  local since=${EPOCHREALTIME/./}
  cut_to alpha
  goes_on deaf alpha "$since"
  mend deaf
}
half_open() {
  begin gone $steps
  local since=${EPOCHREALTIME/./}
  link_down gamma
  goes_on gone gamma "$since"
  mend gone
}
stop() { # the same cut, where the job is not to go on
  begin stop 100000 --on-loss stop
  local since=${EPOCHREALTIME/./}
  cut_from gamma && cut_to gamma
  is_lost stop gamma "$since"
  end stop 138
  says stop "^error: .*${address[gamma]}:4000" || fail "stop: gamma is not named: $(tail -1 stop.log)"
  [ -e stop.onnx ] && fail "stop: a model was written"
  mend stop
}
between_two() { # both still talk to the job: the higher rank is left out
  begin between $steps
  local since=${EPOCHREALTIME/./}
  cut_from alpha beta && cut_from beta alpha
  goes_on between beta "$since"
  says between "^lost  .*have lost each other, though both answer" || fail "between: $(grep '^lost' between.log)"
  mend between
}
between_stops() { # where the job is not to go on, the two are named
  begin apart 100000 --on-loss stop
  local since=${EPOCHREALTIME/./}
  cut_from alpha beta && cut_from beta alpha
  is_lost apart alpha "$since"
  end apart 138
  says apart "^error: .*(${address[alpha]}|${address[beta]}|worker:[01]).*(${address[alpha]}|${address[beta]}|worker:[01])" ||
    fail "apart: the two are not named: $(tail -1 apart.log)"
  mend apart
}
reset() { # at 20 Mbit/s a tensor of this job takes 0.4 s
  slow gamma 20mbit
  begin reset $steps
  local since=${EPOCHREALTIME/./}
  for name in alpha beta job; do reset_from gamma "$name" && reset_from "$name" gamma; done
  goes_on reset gamma "$since"
  slow gamma none
  mend reset
}
brief() { # less than keepalive
  begin brief $steps
  cut_from gamma && cut_to gamma
  sleep 1
  heal
  is_whole brief whole
}
loss() {
  begin loss $steps
  lose 0.05
  is_whole loss whole
  heal
}
one_megabit() { # values, programs and gradients go in parts that are answered, so that questions come between them
  slow gamma 1mbit
  local since=${EPOCHREALTIME/./}
  train slow 3 --cluster cluster.yaml --keys keys/coordinator --parallel dp=3 &
  job=$!
  is_whole slow short
  echo "3 steps at 1 Mbit/s: $(seconds_since "$since") s"
  slow gamma none
}

cases=("${@:2}")
[ ${#cases[@]} -gt 0 ] || cases=(both_ways its_words its_ears half_open stop between_two between_stops reset brief loss one_megabit)
for one in "${cases[@]}"; do
  began=${EPOCHREALTIME/./}
  before=$failures
  "$one"
  echo "$one: $([ $failures -eq "$before" ] && echo well || echo FAILED), $(seconds_since "$began") s"
done
kill "${pid[@]}" 2> /dev/null
wait "${pid[@]}"
conclude "the job has survived what its network did, or has said what that was"
