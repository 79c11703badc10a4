#!/usr/bin/env bash
# Op libraries that run apart (--isolate-ops), through the program a person uses: the same files byte for byte, and a
# library that crashes, ends or loops is an error of its node that ends the job and no worker.
#   isolated_ops_test.sh GRAPH_RUNNER SWIGLU_LIBRARY EVIL_SWIGLU_LIBRARY
set -uo pipefail
runner=$PWD/$1
swiglu=$PWD/$2
evil=$PWD/$3
. tests/faults/job.sh
own_folder

# train NAME STEPS FLAGS... : the model in NAME.onnx, what was said in NAME.log.
train() {
  local name=$1 steps=$2
  shift 2
  "$runner" train model.onnx --data x=images.npy --labels labels.npy --loss softmax_cross_entropy \
    --optimizer sgd --lr 0.1 --batch 64 --steps "$steps" --no-shuffle -o "$name.onnx" "$@" > "$name.log" 2>&1
}
trains() { train "$@" || fail "$1: $(tail -3 "$1.log")"; }
# ends NAME TEXT STEPS FLAGS... : the job ends with an error that has the text, for the node of the op.
ends() {
  local name=$1 text=$2
  shift 2
  train "$name" "$@" && fail "$name: exit 0"
  grep -Eq "^error: .*op library '[a-z_]*.so': node '[^']*' \(example::SwiGlu\) $text" "$name.log" ||
    fail "$name does not name the node: $(tail -3 "$name.log")"
}

make_data 640
"$runner" example swiglu -o model.onnx --op_library "$swiglu" > /dev/null 2>&1 || fail "example swiglu"
"$runner" example swiglu -o apart.onnx --op_library "$swiglu" --isolate-ops > /dev/null 2>&1 || fail "example apart"
cmp model.onnx apart.onnx || fail "the examples differ"

# The same bits, whatever runs where.
for library in "$swiglu" "$evil"; do
  for plan in "" "--local 2 --parallel dp=2" "--local 2 --parallel pp=2,micro=2"; do
    # shellcheck disable=SC2086
    trains here 6 --op_library "$library" $plan
    # shellcheck disable=SC2086
    trains apart 6 --op_library "$library" --isolate-ops $plan
    cmp here.onnx apart.onnx || fail "$(basename "$library") $plan: trained files differ"
  done
done
cmp model.onnx here.onnx > /dev/null && fail "nothing was trained"
for command in "eval here.onnx --data x=images.npy --labels labels.npy --metric accuracy" "check here.onnx" \
  "run here.onnx --input x=x.npy"; do
  head -c 128 images.npy > x.npy
  LC_ALL=C npy '(2, 1, 28, 28)' < <(tail -c 1568 images.npy) > x.npy
  for flags in "" "--isolate-ops"; do
    out=""
    case $command in run*) out="--output-dir out$flags" ;; esac
    # shellcheck disable=SC2086
    "$runner" $command --op_library "$swiglu" $flags $out > "said$flags" 2> "said$flags.err" ||
      fail "$command $flags: $(tail -3 "said$flags.err")"
  done
  case $command in
    run*) diff -r out out--isolate-ops || fail "run: outputs differ" ;;
    *) diff said said--isolate-ops || fail "$command says other things" ;;
  esac
done

# What a library does ends the job, and the node is named.
export WEFT_EVIL_SWIGLU
WEFT_EVIL_SWIGLU="crash 3" ends crash "died of SIGSEGV in Compute" 5 --op_library "$evil" --isolate-ops
WEFT_EVIL_SWIGLU="exit 3" ends exit "ended its process with exit code 0 in Compute" 5 --op_library "$evil" --isolate-ops
WEFT_EVIL_SWIGLU="loop 3" ends loop "has not ended in 2 s, in Compute: does it loop\?" 5 --op_library "$evil" \
  --isolate-ops --op-timeout 2
WEFT_EVIL_SWIGLU="crash 3" ends crash2 "died of SIGSEGV in Compute" 5 --op_library "$evil" --isolate-ops --local 2 \
  --parallel dp=2
WEFT_EVIL_SWIGLU=

# A worker's own flag holds, whatever the job says. The worker lives on and serves the next job.
WEFT_EVIL_SWIGLU="crash 3" "$runner" worker --allow-path "$PWD" --listen "unix:$PWD/w0" --op_library "$evil" \
  --isolate-ops --op-timeout 20 2> w0.log &
worker=$!
cat > cluster.yaml <<YAML
hosts:
  - name: here
    workers:
      - address: unix:$PWD/w0
YAML
ends worker "died of SIGSEGV in Compute" 5 --op_library "$evil" --cluster cluster.yaml
kill -0 "$worker" || fail "the worker died with its library: $(cat w0.log)"
trains next 3 --op_library "$evil" --cluster cluster.yaml
helper=$(pgrep -P "$worker")
[ "$(echo "$helper" | wc -w)" = 1 ] || fail "the worker has the helpers '$helper'"
grep -q "^Seccomp:.*2$" "/proc/$helper/status" || fail "the helper has no filter: $(grep Secc "/proc/$helper/status")"
kill -9 "$worker"
wait "$worker" 2> /dev/null
helper_has_ended() { ! kill -0 "$helper" 2> /dev/null; }
await 10 helper_has_ended || fail "the helper outlives its worker"

# Flags that make no sense.
"$runner" check model.onnx --op_library "$swiglu" --op-timeout 3 > usage.log 2>&1 && fail "--op-timeout alone"
grep -q "error: --op-timeout: .* add --isolate-ops" usage.log || fail "usage: $(cat usage.log)"

conclude passed
