#!/usr/bin/env bash
# tools/trim_cache keeps what was read last.
#   trim_cache_test.sh TRIM_CACHE
set -uo pipefail
trim=$PWD/$1
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# add NAME DAYS SIZE COUNT: sparse files, which take no room, read so many days ago.
add() {
  mkdir -p "$(dirname "cache/$1")"
  for number in $(seq "$4"); do
    truncate -s "$3" "cache/$1 $number"
    touch -a -d "$2 days ago" "cache/$1 $number"
  done
}
left() { find cache -type f | sed 's/ [0-9]*$//' | sort | uniq -c | awk '{ printf "%s %s, ", $1, $2 " " $3 }'; }

# A little less than a GiB each.
for day in 1 2 3; do add "cas/read $day" "$day" 60M 17; done
add 'cas/header' 4 600M 1
add 'ac/action' 4 1K 1

"$trim" cache 5 > said || fail "exit $?"
[ "$(find cache -type f | wc -l)" -eq 53 ] || fail "below the limit: $(left)"
[ -s said ] && fail "it says something although it did nothing"
WEFT_CACHE_GIB=2 "$trim" cache > said || fail "exit $?"
[ "$(find cache/cas -name 'read 3*' | wc -l)" -le 1 ] || fail "the oldest are left: $(left)"
[ "$(find cache/cas -name 'read [12]*' | wc -l)" -eq 34 ] || fail "what may stay is gone: $(left)"
[ -e 'cache/cas/header 1' ] && [ -e 'cache/ac/action 1' ] || fail "headers and actions stay for a week: $(left)"
grep -q 'files of cache .* are gone; 2 GiB may stay' said || fail "it says: $(cat said)"
touch -a -d '8 days ago' cache/cas/header* cache/ac/action*
"$trim" cache 0 > /dev/null
[ "$(find cache -type f | wc -l)" -eq 0 ] || fail "no limit left: $(left)"
"$trim" nowhere 1 || fail "a cache that is not there: exit $?"
"$trim" cache much 2> /dev/null
[ $? -eq 2 ] || fail "a limit that is no number"

[ $failures -eq 0 ]
