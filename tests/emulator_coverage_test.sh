#!/usr/bin/env bash
# What tools/emulator_coverage makes of gcov's text, in a small tree.
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
grep -q '^below 95 %$' errors || fail "errors: $(cat errors)"
row ops/kernels/cuda/loss/loss_body.h '3 of +4 +75.0 %'
row ops/kernels/cuda/loss/loss.cu '1 of +2 +50.0 %'
row all '4 of +6 +66.7 %'
run 0 --from gcov.txt --minimum 66.6 --lines
row ops/kernels/cuda/loss/loss_body.h '3 of +4 +75.0 %  lines 23'
[ "$(tail -1 table | cut -d ' ' -f 1)" = all ] || fail "the sum is not last: $(cat table)"
run 1 --from gcov.txt --minimum 66.7

# What says nothing is no success.
: > empty.txt
run 1 --from empty.txt --minimum 0
grep -q 'no line of a kernel was counted' errors || fail "errors: $(cat errors)"
run 2 --from nowhere.txt
run 2 --minimum many
run 2 everything

[ $failures -eq 0 ] && echo "passed"
exit $((failures > 0))
