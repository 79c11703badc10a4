#!/usr/bin/env bash
# What training in bfloat16 and float16 ends with, against float32: LeNet on Fashion-MNIST within 0.5 points of its
# accuracy on images it has not seen, the small GPT within 1 % of its loss on text it has not seen.
#   precision_accuracy_test.sh GRAPH_RUNNER
set -uo pipefail
runner=$PWD/$1
images=/usr/share/datasets/fashion-mnist
if [ -z "${WEFT_CORPORA:-}" ] || [ ! -d "$images" ]; then
  echo "skipped: WEFT_CORPORA is not set, or there is no $images: nothing to train"
  echo '<testsuite><testcase name="all" result="skipped"/></testsuite>' > "${XML_OUTPUT_FILE:-/dev/null}"
  exit 0
fi
text=$WEFT_CORPORA/text-iris/tinyshakespeare.txt
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
# near NAME VALUE FLOAT32_VALUE GAP
near() {
  awk -v a="$2" -v b="$3" -v gap="$4" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d <= gap && d >= -gap) }' ||
    fail "$1 ends with $2, float32 with $3; allowed are $4"
}

# lenet PRECISION: its accuracy in percent
lenet() {
  "$runner" train "$WEFT_CORPORA/training-models/lenet_mnist.onnx" \
    --data "x=$images/train-images-idx3-ubyte.gz" --labels "$images/train-labels-idx1-ubyte.gz" \
    --optimizer adam --lr 1e-3 --schedule cosine --batch 128 --epochs 5 --precision "$1" \
    --metrics "lenet.$1.csv" -o "lenet.$1.onnx" > "lenet.$1.log" 2>&1 || cat "lenet.$1.log" >&2
  "$runner" eval "lenet.$1.onnx" --data "x=$images/t10k-images-idx3-ubyte.gz" \
    --labels "$images/t10k-labels-idx1-ubyte.gz" --metric accuracy 2> /dev/null |
    awk '$1 == "accuracy" { print 100 * $2 }'
}
# gpt PRECISION: its loss on the last tenth of the text
gpt() {
  local data=(--data "idx=$text" --labels "$text:next" --vocabulary characters --sequence-length 64
    --validation-split 0.1 --loss sequence_cross_entropy)
  "$runner" train "$WEFT_CORPORA/training-models/gpt_char.onnx" "${data[@]}" --optimizer adamw --lr 1e-3 \
    --schedule cosine --warmup 20 --clip-norm 1 --batch 32 --steps 300 --precision "$1" \
    --metrics "gpt.$1.csv" -o "gpt.$1.onnx" > "gpt.$1.log" 2>&1 || cat "gpt.$1.log" >&2
  "$runner" eval "gpt.$1.onnx" "${data[@]}" --metric loss 2> /dev/null | awk '$1 == "loss" { print $2 }'
}

for model in lenet gpt; do
  reference=$($model fp32)
  gap=0.5
  [ $model = gpt ] && gap=$(awk -v loss="$reference" 'BEGIN { print 0.01 * loss }')
  for precision in bf16 fp16; do
    value=$($model $precision)
    echo "$model: $value in $precision, $reference in float32"
    near "$model in $precision" "${value:-0}" "${reference:-0}" "$gap"
  done
  grep -h 'loss scale' "$model.fp16.log" || fail "$model in fp16 says nothing of its loss scale"
  head -1 "$model.fp16.csv" | grep -q ',loss_scale,skipped_steps$' || fail "$model.fp16.csv has no loss scale"
  head -1 "$model.bf16.csv" | grep -q 'loss_scale' && fail "$model.bf16.csv has a loss scale"
done
[ $failures -eq 0 ] && echo passed
exit $failures
