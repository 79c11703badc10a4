#!/usr/bin/env bash
# The table, JSON, limits and exit codes of tools/gpu_check, with programs that stand in for the real ones.
#   gpu_check_test.sh GPU_CHECK
set -uo pipefail
check=$(realpath "$1")
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
unset LD_LIBRARY_PATH
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
mkdir bin
make_program() { # NAME: its text comes from the input
  { printf '#!/usr/bin/env bash\n'; cat; } > "bin/$1"
  chmod +x "bin/$1"
}

# Writes curves of 20 steps; those of a GPU are off by the factor $GPU_FACTOR. $GPU_FAILS names a flag that fails.
make_program graph_runner << 'PROGRAM'
command=$1 device=cpu
arguments=" $* "
[ -z "${GPU_FAILS:-}" ] || [[ "$arguments" != *" $GPU_FAILS "* ]] || { echo "error: ${GPU_ERROR:-no $GPU_FAILS}" >&2; exit 1; }
while [ $# -gt 0 ]; do
  case "$1" in
    --device) device=$2 ;;
    --metrics) metrics=$2 ;;
    -o) result=$2 ;;
  esac
  shift
done
[ -z "${result:-}" ] || echo model > "$result"
[[ "$arguments" != *" --fuse auto "* ]] || [ -n "${UNFUSED:-}" ] || echo "note   fused: 12 nodes run in 3 kernels on the GPU of rank 0"
[[ "$arguments" != *" --cudnn on "* ]] || [ -n "${APART:-}" ] || echo "I join: 4 gradients of attention became one node each"
[[ "$arguments" != *" --local 2 --device cuda "* ]] || echo "note   collectives of 2 GPUs: ${WAY:-NCCL 2.28.9}"
[[ "$arguments" != *" --calibration "* ]] || echo "step   predicted 5 ms, measured 6 ms (median of 19): -16.7 %"
[ "$device" = cpu ] && factor=1 || factor=${GPU_FACTOR:-1.000002}
[ "$command" = eval ] && echo "loss 0.5"
if [ "$command" = conformance ]; then
  echo "failed drawn: by chance"
  [ "$device" = cuda ] && [ -n "${GPU_CASE:-}" ] && echo "failed $GPU_CASE: output 'y' differs"
  echo "7 passed, 1 failed, 0 skipped"
  exit 1
fi
[ "$command" = train ] || exit 0
echo "memory worker:0 peak 1.5 GiB, 99 % of the 1.6 GiB predicted"
[ -n "${metrics:-}" ] || exit 0
echo step,loss,learning_rate,samples_per_second,skipped_steps > "$metrics"
[ "$device" = cpu ] && skipped=4 || skipped=${GPU_SKIPS:-4}
for ((i = 0; i < 20; i++)); do echo "$i,$(awk -v f="$factor" -v i=$i 'BEGIN { if (f == "nan") print f; else printf "%.9g\n", f * (2 - i / 20) }'),0.01,$((i + 100)),$skipped"; done >> "$metrics"
PROGRAM
# Four tests: Second fails behind another test, Third ends the program.
make_program on_gpu_test << 'PROGRAM'
[ "$1" = --gtest_list_tests ] && printf 'Running main()\nSuite.\n  First\n  Second  # GetParam() = 1\nOther/Suite.\n  Third\n  Fourth/0\n' | tail -n +2 && exit
filter=${1#--gtest_filter=}
code=0 before=false
for name in ${filter//:/ }; do
  echo "[ RUN      ] $name"
  case $name in
    *Third) kill -KILL $$ ;;
    *Second) [ -z "${HANGS:-}" ] || { echo $$ > hanging; exec sleep "$HANGS"; }
      $before && { echo "[  FAILED  ] $name, where GetParam() = 1 (1 ms)"; code=1; } || echo "[       OK ] $name (0 ms)" ;;
    *) echo "[       OK ] $name (0 ms)" ;;
  esac
  before=true
done
exit $code
PROGRAM
make_program cuda_card_test << 'PROGRAM'
[ "$1" = --gtest_list_tests ] && printf 'Card.\n  Only\n' && exit
printf '[ RUN      ] Card.Only\nno card\n[  SKIPPED ] Card.Only (0 ms)\n'
PROGRAM
make_program gpu_benchmark << 'PROGRAM'
[ -z "${SLEEPS:-}" ] || sleep "$SLEEPS"
echo "libraries ${LD_LIBRARY_PATH:-none}"
echo "a \"quoted\" back\\slash"
PROGRAM

# run EXIT_CODE ARGUMENT... : into the folder "out"; keeps the table.
run() {
  local expected=$1
  shift
  "$check" --programs bin --out out "$@" > table 2> errors
  local code=$?
  [ $code -eq "$expected" ] || fail "$*: exit code $code, expected $expected: $(cat table errors)"
}
row() { grep -E "^$1 +$2 +[0-9]+  $3\$" table > /dev/null || fail "no row '$1 $2 $3' in: $(cat table)"; }
in_json() { grep -F "$1" out/gpu_check.json > /dev/null || fail "no $1 in: $(cat out/gpu_check.json)"; }
valid_json() {
  command -v python3 > /dev/null || return
  python3 -m json.tool out/gpu_check.json > /dev/null || fail "this is no JSON: $(cat out/gpu_check.json)"
}

run 0 --parts mlp,lenet,lstm,eval,two_ranks,benchmark,device
row mlp passed 'largest difference 2.00e-06; 112 samples/s, CPU 112'
row lenet passed '.*'
row lstm skipped 'no lstm_mnist.onnx in --data'
row eval passed 'difference 0.00e\+00'
row two_ranks passed 'dp=2 largest difference 2.00e-06; tp=2 .*; pp=2 .*'
row device skipped '0 passed, 0 failed, 1 skipped'
grep -q '^5 passed, 0 failed, 2 skipped' table || fail "the counts are wrong: $(tail -1 table)"
in_json '"passed": 5,'
in_json '"part": "benchmark", "outcome": "passed"'
in_json '"figure": "a \"quoted\" back\\slash"'
valid_json

# A failure does not stop what comes behind it; what an earlier check left counts for nothing.
GPU_FACTOR=1.01 run 1 --parts mlp,benchmark
row mlp failed 'mlp.cuda: losses differ by 1.00e-02 from mlp.cpu, allowed 1e-3'
row benchmark passed '.*'
in_json '"failed": 1,'
[ ! -e out/lenet.onnx ] || fail "files of the earlier check are left"
GPU_FACTOR=nan run 1 --parts mlp
row mlp failed 'mlp.cuda: the losses are not 20 numbers, see mlp.cuda.csv'
GPU_FACTOR=1.01 run 0 --parts bf16,fp16
row fp16 passed 'largest difference 1.00e-02; 112 samples/s, CPU 112; 4 steps skipped on both'
GPU_SKIPS=5 run 1 --parts fp16
row fp16 failed 'largest difference 2.00e-06; 5 steps skipped, CPU 4'
GPU_FAILS=pp=2 run 1 --parts mixed,eval
row mixed failed 'pp=2 failed: error: no pp=2'
row eval passed '.*'

# Cases that fail on the CPU, too, are not the GPU's.
mkdir -p data/conformance
run 0 --parts conformance --data data
row conformance passed '7 passed, 1 failed, 0 skipped; CPU: 7 passed, 1 failed, 0 skipped'
GPU_CASE=node/test_add run 1 --parts conformance --data data
row conformance failed '7 passed, .*; failed on the GPU alone: node/test_add'

# PyTorch on the same card, and a profile, by programs that stand in for them.
mkdir path
touch data/gpt.onnx data/resnet50.onnx data/text.txt
cat > path/python3 << 'PROGRAM'
#!/usr/bin/env bash
[ "$1" != -c ] || exit 0
echo "gpt eager bfloat16 56.0 samples/s, 3.00 GiB"
echo "resnet50 compiled bfloat16 224.0 samples/s, 2.00 GiB"
exit "${TORCH_CODE:-0}"
PROGRAM
# Four replayed graphs; in the third, 100 us long, the card is idle for 5 us of 90, and the host busy for 4.
cat > path/nsys << 'PROGRAM'
#!/usr/bin/env bash
[ "$1" = stats ] || exit 0
if [ "$3" = cuda_api_trace ]; then
  echo '"Start (ns)","Duration (ns)","Name"'
  for i in 1 2 3 4; do [ $i -gt "${GRAPHS:-4}" ] || echo "${i}00000,4000,\"cudaGraphLaunch_v10000\""; done
  echo '310000,80000,"cudaStreamSynchronize_v3020"'
else
  printf 'Start (ns),Duration (ns),Name\n205000,80000,a\n305000,40000,a\n350000,45000,b\n410000,40000,c\n'
fi
PROGRAM
chmod +x path/python3 path/nsys
PATH=$PWD/path:$PATH run 0 --parts gpt,gpt_fast,resnet50,torch,timeline --data data
row gpt passed 'fp32 112.0 samples/s; peak 1.5 GiB; bf16 112.0 samples/s; peak 1.5 GiB .*'
row resnet50 passed 'bf16 112.0 samples/s, batch 64; peak 1.5 GiB'
row torch passed '.*56.0 samples/s, 3.00 GiB; .*; ours is 2.00 of gpt eager; gpt_fast is 2.00 of gpt eager; ours is 0.50 of resnet50 compiled'
row timeline passed 'idle 5.6 %; host 0.9 us a step in 0.2 calls of graphs'
TORCH_CODE=1 PATH=$PWD/path:$PATH run 1 --parts torch
row torch failed '.*56.0 samples/s.*; ended early, see torch.log'
GRAPHS=3 PATH=$PWD/path:$PATH run 1 --parts timeline --data data
row timeline failed 'the profile has no replayed graphs'

# Without models of tokens, examples of the same sizes are made; what is off unless asked for is tried as well.
run 0 --parts gpt,gpt_fast,gpt_char,fused,cudnn,calibrate
row gpt passed 'fp32 112.0 samples/s; .*'
row gpt_fast passed 'bf16, --fuse auto --cudnn on: 112.0 samples/s; peak 1.5 GiB'
row gpt_char passed 'largest difference 2.00e-06; 112 samples/s, CPU 112'
row fused passed 'largest difference 2.00e-06; 112 samples/s, without 112'
row cudnn passed 'lenet largest difference 2.00e-06; gpt largest difference 0.00e\+00, 112 samples/s, without 112'
row calibrate passed 'predicted 5 ms, measured 6 ms \(median of 19\): -16.7 %'
grep -q -e '--layers 12 --width 768 --heads 12 --sequence 1024 --vocabulary 50257' out/gpt.log ||
  fail "another GPT than the one of gpu_check_torch.py"
[ "$(wc -c < out/letters.txt)" -eq 300000 ] || fail "no letters"
APART=1 run 1 --parts cudnn
row cudnn failed 'lenet .*; gpt largest difference 0.00e\+00, but its attention did not go through cuDNN, see cudnn.log'
UNFUSED=1 run 1 --parts fused
row fused failed "largest difference 2.00e-06, but nothing went that way: no line 'fused: .*"
GPU_FAILS=auto run 1 --parts fused
row fused failed 'training with --fuse auto failed: error: no auto'
GPU_FAILS=auto GPU_ERROR='NVRTC cannot be opened' run 0 --parts fused
row fused skipped 'error: NVRTC cannot be opened'
GPU_FAILS=on GPU_ERROR='cuDNN cannot be opened' run 0 --parts cudnn
row cudnn skipped 'error: cuDNN cannot be opened'
GPU_FAILS=calibrate run 1 --parts calibrate
row calibrate failed 'calibration failed: error: no calibrate'

# Between two cards jobs have to go through NCCL.
printf '#!/usr/bin/env bash\nfor ((i = 0; i < ${CARDS:-2}; i++)); do echo "GPU $i: a card"; done\n' > path/nvidia-smi
chmod +x path/nvidia-smi
PATH=$PWD/path:$PATH run 0 --parts nccl
row nccl passed 'dp=2 largest difference 2.00e-06; tp=2 .*; pp=2 .*'
WAY='the host, for NCCL is not here' PATH=$PWD/path:$PATH run 1 --parts nccl
row nccl failed '.*; only 0 of 3 jobs went through NCCL, see nccl.log'
CARDS=1 PATH=$PWD/path:$PATH run 0 --parts nccl
row nccl skipped 'one card'

# Libraries beside the programs are theirs.
run 0 --parts benchmark
grep -q '^libraries none$' out/benchmark.log || fail "libraries from nowhere: $(cat out/benchmark.log)"
mkdir bin/lib
run 0 --parts benchmark
grep -q "^libraries $PWD/bin/lib\$" out/benchmark.log || fail "not these libraries: $(cat out/benchmark.log)"
rmdir bin/lib

# A test that ends its program does not hide those behind it; what fails alone, too, is named.
run 1 --parts kernels
row kernels failed '2 passed, 2 failed, 0 skipped; alone, too: Other/Suite.Third'

# One that hangs does not hide those before it.
HANGS=100 run 1 --seconds 3 --parts kernels
row kernels failed 'did not end in [23] s; so far 1 passed, 0 failed'
# Nor does it disturb those behind it.
kill -0 "$(cat hanging)" 2> /dev/null && fail "the test goes on after its part" && kill "$(cat hanging)"

# A part that hangs ends, and so does the check.
begin=$SECONDS
SLEEPS=100 run 1 --seconds 2 --parts benchmark,torch
row benchmark failed 'did not end in [12] s'
row torch skipped 'no time left of 2 s'
[ $((SECONDS - begin)) -lt 30 ] || fail "a hanging part took $((SECONDS - begin)) s"
valid_json

# What is refused touches nothing.
run 2 --parts nothing
grep -q "there is no part 'nothing'" errors || fail "errors: $(cat errors)"
run 2 --seconds 0
mkdir mine && echo keep > mine/gpt.onnx
"$check" --out mine > table 2> errors && fail "a folder with other files is taken"
[ "$(cat mine/gpt.onnx)" = keep ] || fail "another's file is gone"
"$check" --help | grep -q '^parts: doctor' || fail "--help names no parts"

[ $failures -eq 0 ] && echo "passed"
exit $((failures > 0))
