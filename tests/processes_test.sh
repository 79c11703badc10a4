#!/usr/bin/env bash
# Jobs on real worker processes, through the program a person uses: the losses of one process, strict files
# equal byte for byte, and a worker that is killed.
#   processes_test.sh GRAPH_RUNNER SWIGLU_LIBRARY OTHER_LIBRARY
set -uo pipefail
runner=$PWD/$1
swiglu=$PWD/$2
other=$PWD/$3
. tests/faults/job.sh
own_folder

# train NAME STEPS FLAGS... : metrics in NAME.csv, the model in NAME.onnx. It must end well.
train() {
  local name=$1 steps=$2
  shift 2
  "$runner" train model.onnx --data x=images.npy --labels labels.npy --loss softmax_cross_entropy \
    --optimizer sgd --lr 0.1 --batch 64 --steps "$steps" --no-shuffle --metrics "$name.csv" \
    -o "$name.onnx" "$@" > "$name.log" 2>&1 || { fail "$name: $(tail -3 "$name.log")"; return 1; }
}

# Largest relative gap between the losses of two runs is at most 1e-5, and there are as many.
same_losses() {
  paste -d, <(cut -d, -f1,2 "$1.csv") <(cut -d, -f1,2 "$2.csv") | awk -F, -v a="$1" -v b="$2" '
    NR > 1 { rows++; gap = ($2 - $4) / $4; if (gap < 0) gap = -gap; if (!(gap <= 1e-5)) bad = 1
             if (gap > largest) largest = gap }
    END { printf "%s against %s: %d rows, largest gap %.2g\n", a, b, rows, largest
          exit !(rows > 0 && !bad) }' || fail "losses of $1 and $2 differ"
}

# Every rank of a run sent what its plan says: "rank 0 sent 1234 bytes per step, predicted 1234; headers 96".
sent_as_predicted() { # NAME RANKS
  awk -v ranks="$2" '/^rank [0-9]+ sent / { rows++; sub(";", "", $9); if ($4 != $9 || $4 + 0 <= 0) bad = 1 }
    END { exit !(rows == ranks && !bad) }' "$1.log" || fail "$1 sent other than predicted: $(cat "$1.log")"
}

make_data 640

"$runner" example mlp -o model.onnx > /dev/null 2>&1 || fail "example mlp"
train one 10
train dp2 10 --local 2 --parallel dp=2 && same_losses dp2 one && sent_as_predicted dp2 2
train pp2 10 --local 2 --parallel pp=2,micro=2 && same_losses pp2 one && sent_as_predicted pp2 2
train dp2pp2 10 --local 4 --parallel dp=2,pp=2,micro=4 && same_losses dp2pp2 one && sent_as_predicted dp2pp2 4
cat > tensor.yaml <<'YAML'
version: 1
mesh: {tensor: 2}
tensor_shardings:
  fc1.weight: S(0)
  fc1.bias: S(0)
  fc2.weight: S(1)
YAML
train tp2 10 --local 2 --plan tensor.yaml && same_losses tp2 one

# What a plan says of its memory is the requirement that the workers report; a job that does not fit is refused, by name.
planned=$("$runner" plan model.onnx --local 2 --optimizer sgd --batch 64 --parallel pp=2,micro=2 --output json |
  tr -d ' \n' | grep -o '"variable_bytes":[0-9]*,"arena_bytes":[0-9]*' | paste -s -d ' ')
"$runner" train model.onnx --data x=images.npy --labels labels.npy --loss softmax_cross_entropy --optimizer sgd \
  --batch 64 --steps 2 --local 2 --parallel pp=2,micro=2 --output json > memory.json 2> memory.log ||
  fail "memory: $(tail -3 memory.log)"
required=$(tr -d ' \n' < memory.json | grep -o '"variable_bytes":[0-9]*,"arena_bytes":[0-9]*' | paste -s -d ' ')
[ -n "$planned" ] && [ "$planned" = "$required" ] || fail "planned $planned, required $required"
grep -q '^memory worker:1 needs .*: .*variables .*; may have ' memory.log || fail "no requirement: $(cat memory.log)"
grep -q '^memory worker:1 peak .* % of the .* predicted$' memory.log || fail "no peak: $(cat memory.log)"
"$runner" train model.onnx --data x=images.npy --labels labels.npy --loss softmax_cross_entropy --optimizer sgd \
  --batch 64 --steps 2 --local 2 --parallel dp=2 --memory-per-worker 28MiB -o refused.onnx > refused.log 2>&1
code=$?
[ "$code" -eq 6 ] || fail "exit $code for a job that does not fit"
grep -Eq '^error: worker:[01] may have 28 MiB of memory .* and needs .*process .*refused before its first step' \
  refused.log || fail "the refusal does not say what is needed: $(cat refused.log)"

"$runner" example lenet -o model.onnx > /dev/null 2>&1 || fail "example lenet"
for workers in 1 2 4; do train "strict$workers" 10 --strict --local "$workers" --parallel "dp=$workers"; done
cmp strict1.onnx strict2.onnx || fail "strict files of 1 and 2 workers differ"
cmp strict1.onnx strict4.onnx || fail "strict files of 1 and 4 workers differ"

# A custom op of a library trains as a built-in one, on every worker; one that lacks the library is refused.
"$runner" example swiglu -o model.onnx --op_library "$swiglu" > /dev/null 2>&1 || fail "example swiglu"
train custom1 10 --op_library "$swiglu"
train custom2 10 --op_library "$swiglu" --local 2 --parallel dp=2 && same_losses custom2 custom1
train custompp 10 --op_library "$swiglu" --local 2 --parallel pp=2,micro=2 && same_losses custompp custom1
awk -F, 'NR == 2 { first = $2 } END { exit !($2 < first) }' custom2.csv || fail "the custom op does not learn"
"$runner" train model.onnx --data x=images.npy --labels labels.npy --loss softmax_cross_entropy --batch 64 \
  --steps 1 > unknown.log 2>&1 && fail "trains without the library of its op"
grep -q "SwiGlu" unknown.log || fail "the unknown op is not named: $(cat unknown.log)"
"$runner" worker --allow-path / --listen "unix:$PWD/w0" --op_library "$other" 2> w0.log &
first=$!
cat > custom.yaml <<YAML
hosts:
  - name: here
    workers:
      - address: unix:$PWD/w0
YAML
"$runner" train model.onnx --data x=images.npy --labels labels.npy --loss softmax_cross_entropy --batch 64 \
  --steps 1 --op_library "$swiglu" --cluster custom.yaml > lacks.log 2>&1 && fail "trains where a worker lacks the op"
grep -q "has loaded the op library 'swiglu.so [0-9a-f]*' .*, the worker 'faulty_ops.so [0-9a-f]*'; start the worker" \
  lacks.log || fail "the libraries are not compared: $(cat lacks.log)"
[ "$(stat -c %a w0)" = 600 ] || fail "the socket of a worker has mode $(stat -c %a w0)"
kill "$first"
wait "$first" || fail "SIGTERM ends a worker with exit code $?"
[ ! -e w0 ] || fail "a worker that SIGTERM ended left its socket behind"
"$runner" example lenet -o model.onnx > /dev/null 2>&1 || fail "example lenet"

# A loss that is no number names the first node that gave one, and the worker.
"$runner" train model.onnx --data x=images.npy --labels labels.npy --loss softmax_cross_entropy \
  --optimizer sgd --lr 900000 --batch 64 --steps 1000 --no-shuffle --local 2 --parallel dp=2 -o nan.onnx > nan.log 2>&1
code=$?
[ "$code" -ne 0 ] || fail "exit 0 although the loss is not finite"
grep -Eq "^error: worker:[01]: .*loss is .*node '.*this is the first node that made one" nan.log || fail "the node is not named: $(cat nan.log)"
[ ! -e nan.onnx ] || fail "a model was written although the loss is not finite"

# A worker reads and writes below its own folders alone.
mkdir own saved
cp images.npy labels.npy own
(cd own && exec "$runner" worker --listen "unix:$PWD/../w2") 2> w2.log &
bounded=$!
cat > bounded.yaml <<YAML
hosts:
  - name: here
    workers:
      - address: unix:$PWD/w2
YAML
"$runner" train model.onnx --data "x=$PWD/images.npy" --labels "$PWD/labels.npy" --loss softmax_cross_entropy \
  --batch 64 --steps 1 --cluster bounded.yaml > outside.log 2>&1 && fail "a worker read data outside its folder"
grep -q "images.npy' is not below a folder that jobs may read from on this worker ($(pwd -P)/own); start it with --data-root" outside.log || fail "data outside: $(cat outside.log)"
"$runner" train model.onnx --data "x=$PWD/own/../images.npy" --labels "$PWD/labels.npy" --loss softmax_cross_entropy \
  --batch 64 --steps 1 --cluster bounded.yaml > dots.log 2>&1 && fail "a worker read data by a path with .."
ln -s "$PWD/images.npy" own/link.npy
"$runner" train model.onnx --data "x=$PWD/own/link.npy" --labels "$PWD/own/labels.npy" --loss softmax_cross_entropy \
  --batch 64 --steps 1 --cluster bounded.yaml > link.log 2>&1 && fail "a worker read data through a link"
"$runner" train model.onnx --data "x=$PWD/own/images.npy" --labels "$PWD/own/labels.npy" --loss softmax_cross_entropy \
  --batch 64 --steps 2 --cluster bounded.yaml --checkpoint "$PWD/saved" --checkpoint-every 1 > saved.log 2>&1 ||
  fail "data in the worker's folder: $(cat saved.log)"
grep -q "is not below a folder that jobs may write to on this worker ($(pwd -P)/own); start it with --checkpoint-root" saved.log || fail "a checkpoint outside: $(cat saved.log)"
find saved -name '*.safetensors' | grep -q . && fail "a worker wrote a checkpoint outside its folder"
kill "$bounded"
wait "$bounded"
# Where data may be read, nothing is written.
"$runner" worker --data-root "$PWD" --checkpoint-root "$PWD/own" --listen "unix:$PWD/w2" 2> w2.log &
bounded=$!
"$runner" train model.onnx --data "x=$PWD/images.npy" --labels "$PWD/labels.npy" --loss softmax_cross_entropy \
  --batch 64 --steps 2 --cluster bounded.yaml --checkpoint "$PWD/saved" --checkpoint-every 1 > split.log 2>&1 ||
  fail "data below --data-root: $(cat split.log)"
grep -q "is not below a folder that jobs may write to on this worker ($(pwd -P)/own)" split.log || fail "a checkpoint in the data: $(cat split.log)"
"$runner" train model.onnx --data "x=$PWD/images.npy" --labels "$PWD/labels.npy" --loss softmax_cross_entropy \
  --batch 64 --steps 2 --cluster bounded.yaml --checkpoint "$PWD/own/saved" --checkpoint-every 1 > split.log 2>&1 ||
  fail "a checkpoint below --checkpoint-root: $(cat split.log)"
find own/saved -name '*.safetensors' | grep -q . || fail "no checkpoint below --checkpoint-root: $(cat split.log)"
kill "$bounded"
wait "$bounded"

# Workers started by hand serve one job after the other, through a cluster spec.
"$runner" worker --allow-path / --listen "unix:$PWD/w0" 2> w0.log &
first=$!
"$runner" worker --allow-path / --listen "unix:$PWD/w1" 2> w1.log &
second=$!
cat > cluster.yaml <<YAML
hosts:
  - name: here
    workers:
      - address: unix:$PWD/w0
      - address: unix:$PWD/w1
YAML
train alone 10
# Each worker says with its rank what it did, and nothing unasked.
train logged 10 --local 2 --parallel dp=2 --log-level info && same_losses logged alone
for rank in 0 1; do
  grep -Eq "^20[0-9 :.-]+ info [0-9]+ worker:$rank: worker:$rank compiles program 'train/64': " logged.log ||
    fail "worker:$rank does not log: $(cat logged.log)"
done
grep -q ' info ' alone.log && fail "logs unasked"
for job in 1 2; do
  train "hand$job" 10 --cluster cluster.yaml --parallel dp=2 && same_losses "hand$job" alone
done
grep -q "plan   dp=2 " hand1.log || fail "the cluster's two workers are not both used: $(cat hand1.log)"
kill -9 "$first"
kill "$second"
wait "$first" "$second"
# One that starts where a killed one has left its socket.
[ -e w0 ] || fail "the killed worker left no socket"
"$runner" worker --allow-path / --listen "unix:$PWD/w0" 2> w0.log &
first=$!
cat > again.yaml <<YAML
hosts:
  - name: here
    workers:
      - address: unix:$PWD/w0
YAML
train again 10 --cluster again.yaml && same_losses again alone
kill "$first"
wait "$first"

# A worker killed in mid-step: the others go on from the same step, with the processes that they are, and
# come to the bits of a run that has lost nobody.
lose() { # NAME WORKERS PLAN VICTIM: kills the VICTIM-th worker after some steps
  local name=$1 job code left
  "$runner" train model.onnx --data x=images.npy --labels labels.npy --loss softmax_cross_entropy \
    --optimizer adam --lr 0.001 --batch 64 --steps 400 --strict --local "$2" --parallel "$3" \
    --metrics "$name.csv" -o "$name.onnx" > "$name.log" 2>&1 &
  job=$!
  for _ in $(seq 200); do
    [ "$(grep -c . "$name.csv" 2> /dev/null)" -gt "$4" ] 2> /dev/null && break
    sleep 0.05
  done
  left=$(pgrep -P "$job" | sed "$4d")
  kill -9 "$(pgrep -P "$job" | sed -n "$4p")" || fail "$name: no worker to kill"
  for _ in $(seq 200); do
    grep -q "workers go on as" "$name.log" && break
    sleep 0.05
  done
  # The evaluation of what is left is that of a snapshot: the job may end at any time.
  # A worker in the place of the lost one may have come.
  ! kill -0 "$job" 2> /dev/null || [ -z "$(comm -23 <(sort <<< "$left") <(pgrep -P "$job" | sort))" ] ||
    [ -z "$(pgrep -P "$job")" ] || fail "$name: the workers that are left are others"
  wait "$job"
  code=$?
  [ "$code" -eq 0 ] || fail "$name: exit $code after a worker was killed: $(tail -3 "$name.log")"
  grep -q "^lost  .*killed by signal 9" "$name.log" || fail "$name does not say who was lost: $(cat "$name.log")"
  [ "$(wc -l < "$name.csv")" -eq 401 ] || fail "$name: $(wc -l < "$name.csv") rows for 400 steps"
}
"$runner" train model.onnx --data x=images.npy --labels labels.npy --loss softmax_cross_entropy \
  --optimizer adam --lr 0.001 --batch 64 --steps 400 --strict --metrics whole.csv -o whole.onnx \
  > whole.log 2>&1 || fail "whole: $(tail -3 whole.log)"
for victim in 1 2 3; do
  lose "lost$victim" 3 dp=3 "$victim"
  cmp -s whole.onnx "lost$victim.onnx" || fail "the weights differ after worker $victim of 3 was killed"
  cmp -s <(cut -d, -f1,2 whole.csv) <(cut -d, -f1,2 "lost$victim.csv") || fail "losses differ: lost$victim"
done

# With --on-loss stop it ends the job within 10 s, by name, and leaves nothing behind.
"$runner" train model.onnx --data x=images.npy --labels labels.npy --loss softmax_cross_entropy \
  --optimizer sgd --lr 0.01 --batch 64 --steps 1000000 --local 2 --parallel dp=2 --on-loss stop --metrics killed.csv \
  -o killed.onnx > killed.log 2>&1 &
job=$!
for _ in $(seq 100); do
  [ "$(grep -c . killed.csv 2> /dev/null)" -gt 3 ] 2> /dev/null && break
  sleep 0.1
done
worker=$(pgrep -P "$job" | head -1)
kill -9 "$worker" || fail "no worker to kill"
begin=$(date +%s)
wait "$job"
code=$?
[ "$code" -ne 0 ] || fail "exit 0 after a worker was killed"
[ $(($(date +%s) - begin)) -le 10 ] || fail "the job outlived its worker by more than 10 s"
grep -q "pid $worker" killed.log || fail "the error does not name the worker: $(cat killed.log)"
[ -z "$(pgrep -P "$job")" ] || fail "worker processes are left"
[ ! -e killed.onnx ] || fail "a model was written although the job failed"

# A coordinator that was stopped for too long says so, and blames no worker.
"$runner" train model.onnx --data x=images.npy --labels labels.npy --loss softmax_cross_entropy \
  --optimizer sgd --lr 0.01 --batch 64 --steps 1000000 --local 2 --parallel dp=2 --metrics stopped.csv \
  -o stopped.onnx > stopped.log 2>&1 &
job=$!
for _ in $(seq 100); do
  [ "$(grep -c . stopped.csv 2> /dev/null)" -gt 3 ] 2> /dev/null && break
  sleep 0.1
done
kill -STOP "$job"
sleep 10
kill -CONT "$job"
wait "$job"
code=$?
[ "$code" -eq 138 ] || fail "exit $code after the coordinator was stopped: $(tail -3 stopped.log)"
grep -q '^error: .*this process did not run for ' stopped.log || fail "the stop is not named: $(tail -3 stopped.log)"
grep -q 'ended with exit code\|was killed by' stopped.log && fail "a worker is blamed: $(tail -3 stopped.log)"

# Connections of strangers close no door, although they are more than the worker may open files.
(ulimit -n 64 && exec "$runner" worker --allow-path / --listen 127.0.0.1:0) 2> w3.log &
flooded=$!
for _ in $(seq 100); do grep -q 'listening on' w3.log && break; sleep 0.1; done
port=$(sed -n 's/^listening on 127.0.0.1://p' w3.log)
cat > flooded.yaml <<YAML
hosts:
  - name: here
    workers:
      - address: 127.0.0.1:$port
YAML
strangers=()
for _ in $(seq 200); do
  exec {stranger}<> "/dev/tcp/127.0.0.1/$port" && strangers+=("$stranger")
done
[ "${#strangers[@]}" -gt 100 ] || fail "only ${#strangers[@]} strangers have come"
train flooded 10 --cluster flooded.yaml && same_losses flooded alone
for stranger in "${strangers[@]}"; do exec {stranger}>&-; done
train afterwards 10 --cluster flooded.yaml && same_losses afterwards alone
kill "$flooded"
wait "$flooded"

conclude "all jobs gave what one process gives"
