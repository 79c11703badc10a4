#!/usr/bin/env bash
# tools/trim_cache keeps what was read last.
#   trim_cache_test.sh TRIM_CACHE
set -uo pipefail
trim=$PWD/$1
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# Sparse files: they take no room.
mkdir -p "cache/a b"
for day in 1 2 3 4; do
  truncate -s 600M "cache/a b/read on $day"
  touch -a -d "2026-01-0$day" "cache/a b/read on $day"
done
left() { find cache -type f | sort | tr '\n' ' '; }

"$trim" cache 3 > said || fail "exit $?"
[ "$(left)" = "cache/a b/read on 1 cache/a b/read on 2 cache/a b/read on 3 cache/a b/read on 4 " ] || fail "below the limit: $(left)"
[ -s said ] && fail "it says something although it did nothing"
WEFT_CACHE_GIB=2 "$trim" cache > said || fail "exit $?"
[ "$(left)" = "cache/a b/read on 2 cache/a b/read on 3 cache/a b/read on 4 " ] || fail "above the limit: $(left)"
grep -q '1 files of cache .* are gone; 2 GiB may stay' said || fail "it says: $(cat said)"
"$trim" cache 0 > /dev/null
[ -z "$(left)" ] || fail "no limit left: $(left)"
"$trim" nowhere 1 || fail "a cache that is not there: exit $?"
"$trim" cache much 2> /dev/null
[ $? -eq 2 ] || fail "a limit that is no number"

[ $failures -eq 0 ]
