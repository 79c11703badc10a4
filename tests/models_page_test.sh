#!/usr/bin/env bash
# Every graph_runner command of docs/models.md runs as it is written, in one shell, in the order of the page. The files that
# its Python makes come from exporters (exported/, and one of zoo/).
#   models_page_test.sh PAGE GRAPH_RUNNER FOLDER...
set -uo pipefail
page=$PWD/$1
runner=$PWD/$2
source "$PWD/tests/page_commands.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME=$work  # where workers and jobs find their token
mkdir "$work/bin"
ln -s "$runner" "$work/bin/graph_runner"
export PATH=$work/bin:$PATH
cp tests/exported/* "$work"
cp tests/zoo/bert.dynamo.eval.onnx "$work/bert.onnx"
cp tests/zoo/bert.input_ids.npy "$work/ids.npy"
cp tests/zoo/bert.attention_mask.npy "$work/mask.npy"
cp tests/zoo/bert.labels.npy "$work/classes.npy"
cd "$work" || exit 1

commands_of "$page" "## " "" > commands.sh
commands=$(grep -c '^graph_runner ' commands.sh)
[ "$commands" -ge 14 ] || { echo "FAILED: only $commands commands found:"; cat commands.sh; exit 1; }
if ! timeout 200 bash -e commands.sh > log 2>&1; then
  echo "FAILED: a command of docs/models.md failed:"
  tail -40 log
  exit 1
fi
for file in trained.onnx trained-script.onnx job.yaml curve.csv unfolded.onnx repaired.onnx tuned.onnx adapted.onnx; do
  [ -s "$file" ] || { echo "FAILED: the commands made no $file"; exit 1; }
done
# What the page says of them.
for line in "untied 19 tensors that the exporter had merged" "exported for inference: it normalizes with its running statistics" \
            "note: without effect here: --metrics" "repair BatchNormalization behind 2 convolutions" "it runs and trains"; do
  grep -qF -- "$line" log ||
    { echo "FAILED: docs/models.md speaks of '$line', which nothing prints"; tail -60 log; exit 1; }
done
accuracy=$(awk '/^accuracy/ { print $2 }' log)
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.9) }' || { echo "FAILED: accuracy $accuracy"; exit 1; }
echo "$commands commands ran; accuracy $accuracy"
