#!/usr/bin/env bash
# The command line of tools/bench/run, and its modules that need no peer.
#   run_test.sh RUN
set -uo pipefail
run=$(realpath "$1")
command -v python3 > /dev/null || { echo "skipped: no python3"; exit 0; }
export PYTHONDONTWRITEBYTECODE=1
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
for test in pairing_test table_test printed_test; do
  (cd "$(dirname "$run")/peers" && python3 -m unittest "$test") || fail "$test"
done

cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
# try EXIT_CODE ARGUMENT...: keeps output and errors.
try() {
  local expected=$1 code
  shift
  "$run" "$@" > out 2> errors
  code=$?
  [ $code -eq "$expected" ] || fail "$*: exit code $code, expected $expected: $(cat out errors)"
}
says() { grep -q -e "$1" errors || fail "'$1' is not in the errors: $(cat errors)"; }

# Help needs no peer, fits a terminal and ends in three examples.
try 0 --help
[ "$(wc -l < out)" -le 24 ] || fail "help has $(wc -l < out) lines"
[ "$(wc --max-line-length < out)" -le 100 ] || fail "help is $(wc --max-line-length < out) columns wide"
[ "$(sed -n '/^examples:$/,$p' out | grep -c '^  tools/bench/run ')" -eq 3 ] || fail "help has other than three examples"

# What is refused touches nothing.
try 2 --groups inference,nothing
says "^error: there is no group 'nothing'; there are inference, "
try 2 --quik
says '^error: unrecognized arguments: --quik (tools/bench/run --help)$'
try 2 --threads 0
says '^error: --threads wants numbers from 1 on'
try 2 measured.json
says "^error: unexpected argument 'measured.json'"
try 2 --table page.md
says '^error: --table wants files that were measured'
try 5 --table page.md nowhere.json
says '^error: cannot read nowhere.json'

# A page from a file.
cat > measured.json << 'JSON'
{"format": 1, "quick": false, "peers": {"onnxruntime": "1.32.0"},
 "machine": {"processor": "a processor", "cores": 2, "limit": "", "load": 0.1, "date": "2026-11-28", "commit": "abc",
             "limits": {"1": {"threads": 1, "instruction_set": "AVX2", "gflops": 90.0, "gigabytes": 20.0}}},
 "rows": [{"group": "inference", "case": "bert", "peer": "onnxruntime", "threads": 1, "status": "measured", "unit": "s",
           "ours": {"p25": 0.01, "median": 0.01, "p75": 0.01}, "theirs": {"p25": 0.02, "median": 0.02, "p75": 0.02},
           "ratio": {"p25": 0.49, "median": 0.5, "p75": 0.52}}]}
JSON
printf '# Page\n' > page.md
try 5 --table page.md measured.json
says '^error: the page has to have these two lines once'
[ "$(cat page.md)" = '# Page' ] || fail "the page changed: $(cat page.md)"
printf '# Page\n\n<!-- Made by tools/bench/run --table from here -->\n<!-- Made by tools/bench/run --table up to here -->\n\nAfter.\n' > page.md
try 0 --table page.md measured.json
grep -qF '| bert | onnxruntime | 1 | A | 10 ms | 20 ms | **0.50** (0.49 to 0.52) |  |' page.md || fail "the page is: $(cat page.md)"
[ "$(tail -1 page.md)" = 'After.' ] || fail "the end of the page is gone"
cp page.md once.md
try 0 --table page.md measured.json
cmp -s page.md once.md || fail "a second time changes the page"

[ $failures -eq 0 ] && echo "passed"
exit $((failures > 0))
