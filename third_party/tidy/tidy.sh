#!/bin/bash
# Runs clang-tidy on one source for the aspect of tidy.bzl: OUTPUT SOURCE FLAGS...
set -u
output=$1
source=$2
shift 2
if ! command -v clang-tidy-14 > /dev/null; then
  echo "error: --config=tidy needs clang-tidy-14: apt-get install clang-tidy-14" >&2
  exit 1
fi
# It counts, on standard error, what it has found in headers of the system and does not show.
if ! clang-tidy-14 --quiet --config-file=.clang-tidy "$source" -- "$@" > "$output" 2> "$output.errors"; then
  cat "$output"
  grep -v 'warnings generated\|warnings treated as errors' "$output.errors" >&2
  rm -f "$output.errors"
  exit 1
fi
rm -f "$output.errors"
