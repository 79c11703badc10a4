# What the tests of faults share: a job that anybody can run again, and what is expected of it. Sourced, by programs
# whose variable `runner` is graph_runner.

failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
skip() {
  echo "skipped: $*"
  echo '<testsuite><testcase name="all" result="skipped"/></testsuite>' > "${XML_OUTPUT_FILE:-/dev/null}"
  exit 0
}

# own_folder [COMMAND] : the rest of the program runs in an empty folder. It goes when the program ends, after COMMAND.
own_folder() {
  cd "$(mktemp -d)" || exit 1
  export HOME=$PWD  # where workers and jobs find their token
  trap "${1:-:}; rm -rf '$PWD'" EXIT
  trap 'exit 1' INT TERM
}

# own_world ARGUMENTS... : the rest of the program runs in mounts, processes and networks of its own, in an empty
# folder in memory. When it ends, also by SIGKILL, the kernel takes all of that away. As root alone.
own_world() {
  if [ -z "${WEFT_OWN_WORLD:-}" ]; then
    [ "$(id -u)" -eq 0 ] || skip "making namespaces needs root"
    unshare --mount --pid --fork --kill-child --mount-proc true 2> /dev/null ||
      skip "this machine lets nobody make namespaces"
    WEFT_OWN_WORLD=1 exec unshare --mount --pid --fork --kill-child --mount-proc bash "$0" "$@"
  fi
  mount -t tmpfs tmpfs /run && mkdir /run/netns /run/work && cd /run/work || exit 1
  export HOME=$PWD  # where workers and jobs find their token
}

# make_data SAMPLES : images.npy and labels.npy, which depend on the samples' numbers.
make_data() {
  awk -v n="$1" 'BEGIN { for (i = 0; i < n * 784; i++) { s = (s * 1103515245 + 12345) % 2147483648
                         printf "%c", 1 + int(s / 65536) % 120 } }' | LC_ALL=C npy "($1, 28, 28)" > images.npy
  awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%c", 1 + (i * 7) % 9 }' | LC_ALL=C npy "($1,)" > labels.npy
}
npy() { # SHAPE; bytes from the standard input
  printf '\x93NUMPY\x01\x00\x76\x00'
  printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': $1, }"
  cat
}

# train NAME STEPS FLAGS... : a strict job, which comes to the same bits wherever it runs. Its metrics are in NAME.csv,
# its model in NAME.onnx, what it says in NAME.log. `before_train` is put before the program.
before_train=()
train() {
  "${before_train[@]}" "$runner" train model.onnx --data x=images.npy --labels labels.npy --optimizer adam --lr 0.001 \
    --batch 48 --steps "$2" --strict --metrics "$1.csv" -o "$1.onnx" "${@:3}" > "$1.log" 2>&1
}
# start COMMAND... : a function such as train in the background. `job` is the program, `wait $shell` has its exit code.
start() {
  "$@" &
  shell=$!
  await 20 has_started
  job=$(pgrep -P "$shell" | head -1)
}
has_started() { pgrep -P "$shell" > /dev/null || ! kill -0 "$shell" 2> /dev/null; }
# worker_ids : the processes of a job's own workers, in order.
worker_ids() { pgrep -P "$job" 2> /dev/null | sort -n; }
# rows NAME : steps that the job has told of.
rows() {
  local count=0
  [ -e "$1.csv" ] && count=$(wc -l < "$1.csv")
  echo $((count > 0 ? count - 1 : 0))
}
# await SECONDS CONDITION... : until the command is true; false when the time is over.
await() {
  local end=$((${EPOCHREALTIME/./} + $1 * 1000000))
  shift
  until "$@"; do
    [ "${EPOCHREALTIME/./}" -lt "$end" ] || return 1
    sleep 0.02
  done
}
has_done() { [ "$(rows "$1")" -ge "$2" ]; }
same() { # NAME NAME : the same weights and losses
  cmp -s "$1.onnx" "$2.onnx" || fail "the weights of $1 and $2 differ"
  cmp -s <(cut -d, -f1,2 "$1.csv") <(cut -d, -f1,2 "$2.csv") || fail "the losses of $1 and $2 differ"
}
# seconds_since MICROSECONDS : since that value of ${EPOCHREALTIME/./}.
seconds_since() { awk -v us=$((${EPOCHREALTIME/./} - $1)) 'BEGIN { printf "%.2f", us / 1e6 }'; }
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b) }'; }

conclude() { # TEXT : the end of the program
  [ "$failures" -eq 0 ] && echo "$1"
  exit "$((failures > 0))"
}
