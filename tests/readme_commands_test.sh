#!/usr/bin/env bash
# Every command of README.md between "## Train" and "## Where to go" runs as it is written, in one shell, in the order
# of the page. A command that fails ends the shell (set -e), so the test fails with its output.
#   readme_commands_test.sh README GRAPH_RUNNER CUSTOM_OP_HEADER CUSTOM_OP_SOURCE
set -uo pipefail
readme=$PWD/$1
runner=$PWD/$2
header=$PWD/$3
source=$PWD/$4
source "$PWD/tests/page_commands.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export HOME=$work  # where workers and jobs find their token

# What the root of the repository has for these commands.
mkdir -p bazel-bin/tools ops/custom/examples
ln -s "$runner" bazel-bin/tools/graph_runner
cp "$header" ops/custom_op.h
cp "$source" ops/custom/examples/swiglu.cc

commands_of "$readme" "## Train" "## Where to go" > commands.sh
# The ports of the page may be taken on this machine. These are below those that the system gives to connections.
first=$((20000 + RANDOM % 12000))
sed -i "s/127\.0\.0\.1:4000/127.0.0.1:$first/g; s/127\.0\.0\.1:4001/127.0.0.1:$((first + 1))/g" commands.sh
commands=$(grep -c '^\(graph_runner\|c++\) ' commands.sh)
[ "$commands" -ge 12 ] || { echo "FAILED: only $commands commands found:"; cat commands.sh; exit 1; }

if ! timeout 300 bash -e commands.sh > log 2>&1; then
  echo "FAILED: a command of README.md failed:"
  tail -40 log
  exit 1
fi
for file in lenet.onnx trained.onnx cluster.yaml swiglu.so swiglu-trained.onnx; do
  [ -s "$file" ] || { echo "FAILED: the commands made no $file"; exit 1; }
done
# What README.md shows of the plan is what the command prints, but for the arena, which depends on the processor.
without_arena() { sed -E 's/ +[0-9.]+ [KMG]iB( +[0-9.]+ [KMG]iB)$/ ARENA\1/' "$1"; }
awk '/^plan dp=2 x tp=1 x pp=2/ { on = 1 } /^```/ { on = 0 } on' "$readme" > shown
[ -s shown ] || { echo "FAILED: README.md shows no plan"; exit 1; }
without_arena log > printed
without_arena shown > wanted
while IFS= read -r line; do
  grep -qxF -- "$line" printed || { echo "FAILED: README.md shows a line that plan does not print: $line"; tail -60 log; exit 1; }
done < wanted
accuracy=$(awk '/accuracy/ { for (i = 1; i <= NF; i++) if ($i + 0 > 0) value = $i + 0 } END { print value }' log)
echo "$commands commands ran; accuracy $accuracy"
