#!/usr/bin/env bash
# Jobs whose workers are killed, frozen, told to leave and replaced, through the program a person uses: survivors are
# the processes that they were, and the weights are those of an undisturbed run, bit for bit.
#   members_test.sh GRAPH_RUNNER
set -uo pipefail
runner=$1
case $1 in /*) ;; *) runner=$PWD/$1 ;; esac
steps=600 whole=whole
. tests/faults/job.sh
workers=()
own_folder end_workers
end_workers() { [ ${#workers[@]} -eq 0 ] || kill -9 "${workers[@]}" 2> /dev/null; }

make_data 480
"$runner" example lenet -o model.onnx > /dev/null 2>&1 || fail "example lenet"

# begin NAME FLAGS... : starts a job in the background ($job) and waits until it has done some steps.
begin() {
  name=$1
  start train "$name" "$steps" "${@:2}"
  await 20 has_done "$name" 10
}
# says TEXT SECONDS : waits until the job has said it.
says() { await "$2" grep -q "$1" "$name.log" || { fail "$name does not say '$1' within $2 s: $(cat "$name.log")"; return 1; }; }
# undisturbed : the job ends well, has done each step once, and its weights are those of the undisturbed run.
undisturbed() {
  wait "$shell"
  local code=$?
  [ "$code" -eq 0 ] || fail "$name: exit $code: $(tail -3 "$name.log")"
  same "$name" "$whole"
}
# stay PIDS : these processes are still workers of the job.
stay() { [ -z "$(comm -23 <(sort <<< "$1") <(worker_ids | sort))" ] || fail "$name: survivors are others"; }

# A run that nobody disturbs.
run_whole() { train "$whole" "$steps" || fail "$whole: $(tail -3 "$whole.log")"; }
run_whole

# A new process takes the place of a killed one, and the others wait for it.
begin replaced --local 3 --parallel dp=3 --on-loss wait
victim=$(worker_ids | sed -n 2p)
left=$(worker_ids | grep -v "^$victim$")
kill -9 "$victim" || fail "no worker to kill"
says "^lost  .*killed by signal 9.*; 3 of 3 workers go on as dp=3 .* with worker:[0-9] .* in its place" 20 && stay "$left"
undisturbed

# Where they go on at once, it is taken in later.
begin later --local 3 --parallel dp=3
kill -9 "$(worker_ids | sed -n 3p)" || fail "no worker to kill"
says "^lost  .*; 2 of 3 workers go on as dp=2" 10
says "^joined worker:[0-9] .*; 3 workers instead of 2 go on as dp=3" 20
undisturbed

# A frozen one is lost within a second of silence. That is told by the job's own clock: whatever this shell or the job
# itself was late by does not count.
begin frozen --local 2 --parallel dp=2 --detect fast --log-level warning
victim=$(worker_ids | sed -n 2p)
kill -STOP "$victim"
says "^lost  .*a signal has stopped it.*; 1 of 2 workers go on as dp=1" 15
kill -0 "$victim" 2> /dev/null && fail "the frozen worker is left"
told=$(sed -n -E "s/.*worker process $victim has not answered for ([0-9.]+) s; meanwhile this process was late by ([0-9.]+) s.*/\1 \2/p" frozen.log)
echo "a frozen worker was silent for ${told% *} s, and the job late by ${told#* } s"
[ -n "$told" ] && awk '{ exit !($1 - $2 <= 1) }' <<< "$told" || fail "--detect fast: not within a second: $(cat frozen.log)"
undisturbed

# One that is told to end leaves first: no loss, and nobody starts it anew.
begin leaving --local 3 --parallel dp=3
victim=$(worker_ids | sed -n 1p)
kill -TERM "$victim"
says "^left   worker:[0-9] .*pid $victim) on purpose; 2 workers instead of 3 go on as dp=2" 10
undisturbed
grep -q '^lost\|^joined' leaving.log && fail "leaving: $(cat leaving.log)"

# A job that needs it saves its state, and stops.
begin needed --local 2 --parallel pp=2,micro=4 --checkpoint saved --checkpoint-every 1e
kill -TERM "$(worker_ids | sed -n 2p)"
wait "$shell"
code=$?
[ "$code" -eq 11 ] || fail "needed: exit $code: $(tail -3 needed.log)"
grep -q '^stopped by a worker that leaves after step ' needed.log || fail "needed: $(cat needed.log)"
[ -n "$(ls saved 2> /dev/null)" ] || fail "needed: no checkpoint"

# Workers that were started by hand: one that is killed and started again is taken in.
worker() { # NUMBER
  "$runner" worker --allow-path / --listen "unix:$PWD/w$1" 2>> "w$1.log" &
  workers[$1]=$!
}
cat > cluster.yaml <<YAML
hosts:
  - name: here
    workers:
      - {address: "unix:$PWD/w0", threads: 1}
      - {address: "unix:$PWD/w1", threads: 1}
YAML
worker 0
worker 1
begin back --cluster cluster.yaml --parallel dp=2 --on-loss wait
kill -9 "${workers[1]}"
wait "${workers[1]}" 2> /dev/null
sleep 1
worker 1
says "^lost  .*; 2 of 2 workers go on as dp=2 .* with worker:1 " 20
undisturbed

# One that was frozen until its job had given it up ends itself, and changes nothing.
begin stale --cluster cluster.yaml --parallel dp=2 --detect fast
kill -STOP "${workers[1]}"
says "^lost  .*; 1 of 2 workers go on as dp=1" 15
kill -CONT "${workers[1]}"
wait "${workers[1]}"
code=$?
[ "$code" -eq 138 ] || fail "a stale worker ends with exit code $code: $(cat w1.log)"
grep -q 'this worker did not run for .*, and its job has given it up' w1.log || fail "stale: $(cat w1.log)"
undisturbed

# One that leaves a job of others ends with exit code 0.
worker 1
begin goodbye --cluster cluster.yaml --parallel dp=2
kill -TERM "${workers[1]}"
says "^left   worker:1 .* on purpose; 1 workers instead of 2" 10
wait "${workers[1]}"
code=$?
[ "$code" -eq 0 ] || fail "a worker that leaves ends with exit code $code: $(cat w1.log)"
undisturbed

# A program takes a second to start: the rest has more steps.
steps=1500 whole=longer
run_whole

# A worker that no file names joins while the job runs: the others stay who they are, and wait for one boundary alone.
begin joined --local 2 --parallel dp=2 --listen "unix:$PWD/desk"
left=$(worker_ids)
"$runner" worker --allow-path / --listen "unix:$PWD/joiner" --join "unix:$PWD/desk" 2> joiner.log &
workers[7]=$!
says "^workers may join at unix:" 5
says "^joined worker:2 .*; 3 workers instead of 2 go on as dp=3" 30 && stay "$left"
undisturbed
wait "${workers[7]}"
code=$?
[ "$code" -eq 0 ] || fail "a worker that has joined ends with exit code $code after its job: $(cat joiner.log)"
# The step after the boundary comes within a second of the one before it; seconds are not exact on a machine that is busy.
pause=$(sed -n -E 's/^joined .* after ([0-9.]+) s$/\1/p' joined.log)
awk -v p="${pause:-9}" 'BEGIN { exit !(p <= 2) }' || fail "joined: the others have waited for ${pause:-?} s"
echo "a worker has joined; the others have waited for ${pause:-?} s between two steps"

# It is a member as the others are: one of them is killed, and it has the state.
begin alone --local 1 --listen "unix:$PWD/desk"
"$runner" worker --allow-path / --listen "unix:$PWD/joiner" --join "unix:$PWD/desk" 2> joiner.log &
workers[7]=$!
says "^joined worker:1 .*; 2 workers instead of 1 go on as dp=2" 30
kill -9 "${workers[7]}"
wait "${workers[7]}" 2> /dev/null
says "^lost  .*; 1 of 2 workers go on as dp=1" 15
undisturbed

# Who may not join is told why, and the job goes on. (Roles, versions and numbers: joining_test.)
begin refusing --local 2 --parallel dp=2 --listen "unix:$PWD/desk"
says "^workers may join at unix:" 5
printf '%s' fedcba9876543210fedcba9876543210 > other-token
chmod 600 other-token
refused() { # EXIT TEXT FLAGS... : a worker with these flags may not join
  local code
  timeout 60 "$runner" worker --allow-path / --listen "unix:$PWD/refused" "${@:3}" 2> refused.log
  code=$?
  [ "$code" -eq "$1" ] || fail "exit code $code instead of $1 (${*:3}): $(cat refused.log)"
  grep -q "$2" refused.log || fail "not '$2': $(cat refused.log)"
}
refused 9 "this worker may not join: .*--token-file" --join "unix:$PWD/desk" --token-file other-token
undisturbed

# A spare of the cluster file takes the place of a worker that is killed, at once.
cat > spare.yaml <<YAML
hosts:
  - name: here
    workers:
      - {address: "unix:$PWD/w0", threads: 1}
      - {address: "unix:$PWD/w1", threads: 1}
      - {address: "unix:$PWD/w2", threads: 1, role: spare}
YAML
"$runner" plan model.onnx --loss softmax_cross_entropy --optimizer adam --batch 64 --cluster spare.yaml --parallel dp=2 \
  > plan.log 2>&1 || fail "plan: $(cat plan.log)"
grep -q '^spare spare:0 on here' plan.log || fail "plan says nothing of the spare: $(cat plan.log)"
worker 1
worker 2
begin spare --cluster spare.yaml --parallel dp=2
says "^spare  worker:2 .* waits for the place of a lost worker" 5
kill -9 "${workers[1]}"
wait "${workers[1]}" 2> /dev/null
says "^lost  .*; 2 of 2 workers go on as dp=2 .* with worker:2 .* in its place .*(prepared)" 15
kill -0 "${workers[0]}" 2> /dev/null || fail "spare: a survivor is gone"
undisturbed

conclude "members have changed, and no bit of the weights"
