#!/usr/bin/env bash
# What tools/emulator_coverage makes of gcov's text, and of counts that a program has left, in a small tree.
#   emulator_coverage_test.sh EMULATOR_COVERAGE
set -uo pipefail
script=$(realpath "$1")
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
mkdir -p tools ops/kernels/cuda/loss
cp "$script" tools/emulator_coverage
echo 'WEFT_GPU void Body();' > ops/kernels/cuda/loss/loss_body.h
echo 'int plan;' > ops/kernels/cuda/loss/loss_plan.h
echo 'int launch;' > ops/kernels/cuda/loss/loss.cu
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
# run EXIT_CODE ARGUMENT...: keeps the table and the errors.
run() {
  local expected=$1 code
  shift
  tools/emulator_coverage "$@" > table 2> errors
  code=$?
  [ $code -eq "$expected" ] || fail "$*: exit code $code, expected $expected: $(cat table errors)"
}
row() { grep -E "^$1 +$2\$" table > /dev/null || fail "no row '$1 $2' in: $(cat table)"; }
says() { grep -q "$1" errors || fail "'$1' is not in the errors: $(cat errors)"; }

# Line 24 runs in one of two instances. Headers of hosts and of the system do not count.
cat > gcov.txt << 'TEXT'
        -:    0:Source:ops/kernels/cuda/loss/loss_body.h
        -:    0:Graph:loss.gcno
        -:    1:// a: comment
       12:   22:  code: of a line
    #####:   23:  code
    #####:   24:  code
------------------
void Body<float>():
       3*:   24:  code
        -:    0:Source:ops/kernels/cuda/loss/loss.cu
        1:    5:code
    =====:    6:code
        -:    0:Source:ops/kernels/cuda/loss/loss_plan.h
    #####:    7:code
        -:    0:Source:tensor/shape.h
    #####:    8:code
        -:    0:Source:ops/kernels/cuda/loss/loss_body.h
        2:   22:  code
        9:   30:  code
TEXT
run 1 --from gcov.txt
says '^below 95 %: loss$'
row loss '4 of +6 +66.7 %'
row all '4 of +6 +66.7 %'
[ "$(wc -l < table)" = 2 ] || fail "more than families: $(cat table)"
run 0 --from gcov.txt --minimum 66.6 --files
row ops/kernels/cuda/loss/loss_body.h '3 of +4 +75.0 %'
row ops/kernels/cuda/loss/loss.cu '1 of +2 +50.0 %'
run 0 --from gcov.txt --minimum 66.6 --lines
row ops/kernels/cuda/loss/loss_body.h '3 of +4 +75.0 %  lines 23'
[ "$(tail -1 table | cut -d ' ' -f 1)" = all ] || fail "the sum is not last: $(cat table)"
run 1 --from gcov.txt --minimum 66.7

# A source that nobody compiles has no lines: it is missed nevertheless.
mkdir -p ops/kernels/cuda/pool
echo 'int launch;' > ops/kernels/cuda/pool/pool.cu
run 1 --from gcov.txt --minimum 50
says '^no line was counted: ops/kernels/cuda/pool/pool.cu$'
run 0 --from gcov.txt --minimum 50 --family loss

# One family alone: other files do not count. A family below the minimum is not made up for by others.
cat >> gcov.txt << 'TEXT'
        -:    0:Source:ops/kernels/cuda/pool/pool.cu
    #####:    3:code
TEXT
run 1 --from gcov.txt --family pool
row all '0 of +1 +0.0 %'
run 1 --from gcov.txt --family loss --family pool
row all '4 of +7 +57.1 %'
run 1 --from gcov.txt --minimum 50
says '^below 50 %: pool$'
row pool '0 of +1 +0.0 %'
run 2 --from gcov.txt --family nowhere
run 2 --from gcov.txt --family ''

# A program as Bazel would make it, and the compiler's own counts of it: the branch that nobody takes is missing.
cat > ops/kernels/cuda/loss/loss_body.h << 'TEXT'
#define WEFT_GPU
template <typename T>
WEFT_GPU T Half(T x) {
  if (x < 0) {
    return 0;
  }
  return x / 2;
}
TEXT
cat > ops/kernels/cuda/loss/loss.cu << 'TEXT'
#include "ops/kernels/cuda/loss/loss_body.h"
int main(int count, char**) {
  return Half(count) + static_cast<int>(Half(static_cast<double>(count))) != 0;
}
TEXT
mkdir -p bin/ops/kernels/cuda/loss
object=bin/ops/kernels/cuda/loss/loss.o
if [ -z "$(command -v g++)" ] || [ -z "$(command -v gcov)" ]; then
  echo "no g++ or gcov in PATH: counts of a program are not read"
elif g++ -iquote . -x c++ --coverage -O0 -c ops/kernels/cuda/loss/loss.cu -o $object && g++ --coverage $object -o loss; then
  ./loss || fail "the program ended with $?"
  run 1 --objects bin --family loss --lines
  row ops/kernels/cuda/loss/loss_body.h '3 of +4 +75.0 %  lines 5'
  row ops/kernels/cuda/loss/loss.cu '2 of +2 +100.0 %'
  run 0 --objects bin --family loss --minimum 83.3
  run 2 --objects bin --from gcov.txt
  run 2 --objects nowhere
else
  fail "g++ --coverage: see above"
fi

# What says nothing is no success.
: > empty.txt
run 1 --from empty.txt --minimum 0
grep -q 'no line of a kernel was counted' errors || fail "errors: $(cat errors)"
run 2 --from nowhere.txt
run 2 --minimum many
run 2 everything

[ $failures -eq 0 ] && echo "passed"
exit $((failures > 0))
