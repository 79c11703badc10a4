#!/usr/bin/env bash
# tools/fuzz with programs that stand in for fuzz targets: what it counts, what it goes on from, when it fails.
# Its argument: tools/fuzz.
set -u
fuzz=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

mkdir programs programs/good_fuzz.corpus
echo seed > programs/good_fuzz.corpus/seed
# Takes no time, finds a new input, and wants its corpus.
cat > programs/good_fuzz << 'TEXT'
#!/usr/bin/env bash
folders=()
for word in "$@"; do [[ $word == -* ]] || folders+=("$word"); done
[ -e "${folders[1]}/seed" ] || exit 5
echo input > "${folders[0]}/input-$RANDOM-$RANDOM"
echo "stat::number_of_executed_units: 1000" >&2
TEXT
# Fails on three inputs, and then no more.
cat > programs/bad_fuzz << 'TEXT'
#!/usr/bin/env bash
for word in "$@"; do [[ $word != -artifact_prefix=* ]] || prefix=${word#*=}; done
echo "stat::number_of_executed_units: 7" >&2
number=$(find "${prefix%/}" -name 'crash-*' | wc -l)
[ "$number" -lt 3 ] || exit 0
echo input > "${prefix}crash-$number"
exit 77
TEXT
printf '#!/usr/bin/env bash\necho cannot start >&2\nexit 3\n' > programs/broken_fuzz
chmod +x programs/*_fuzz

"$fuzz" --programs programs --seconds 5 --jobs 3 --out out > table 2> /dev/null && fail "findings, and exit code 0"
grep -Eq '^good_fuzz +[0-9]+ +1000 +1 +0$' table || fail "good_fuzz: $(cat table)"
grep -Eq '^bad_fuzz +[0-9]+ +28 +0 +3$' table || fail "bad_fuzz: $(cat table)"
grep -Eq '^broken_fuzz .* ended with exit code 3' table || fail "broken_fuzz: $(cat table)"
[ -e out/bad_fuzz/findings/crash-2 ] || fail "the inputs that failed are not kept"
[ "$(ls programs/good_fuzz.corpus)" = seed ] || fail "the corpus has changed"

# Alone, and from where it was: earlier findings are not found again.
"$fuzz" --programs programs --seconds 5 --out out good_fuzz bad_fuzz > table 2> /dev/null || fail "exit code $?: $(cat table)"
grep -Eq '^bad_fuzz +[0-9]+ +7 +0 +0$' table || fail "once more: $(cat table)"
grep -q broken_fuzz table && fail "a target that was not asked for ran"

"$fuzz" --programs programs none_fuzz 2> error
[ $? -eq 2 ] || fail "an unknown target is no usage error"
grep -q "no target 'none_fuzz'; there are: bad_fuzz broken_fuzz good_fuzz" error || fail "$(cat error)"
for wrong in "--seconds 0" "--jobs many" "--programs $work/none" --what; do
  # shellcheck disable=SC2086  # an option and its value
  "$fuzz" $wrong 2> error
  [ $? -eq 2 ] || fail "$wrong: $(cat error)"
done
[ "$("$fuzz" --programs programs --list | wc -l)" -eq 3 ] || fail "--list"

[ $failures -eq 0 ] && echo "tools/fuzz counts what its programs do"
exit "$((failures > 0))"
