#!/usr/bin/env bash
# run_nvcc.sh REPORT NVCC ARGUMENT...: runs nvcc with -Xptxas=-v. What ptxas says of kernels goes to REPORT,
# without the time it took. All else is shown, and fails: nvcc is silent where it finds nothing.
report=$1
shift
said=$("$@" 2>&1)
code=$?
known='^ptxas info |^ +[0-9]+ bytes stack frame'
grep -E "$known" <<< "$said" | grep -v "Compile time" > "$report"
if others=$(grep -vE "$known" <<< "$said") && [ -n "$others" ]; then
  echo "$others" >&2
  exit 1
fi
exit $code
