#!/usr/bin/env bash
# Two worker processes of which one may use a whole processor and one half of it (control groups with periods of
# 10 ms): under the plan that is found from a calibration they train at least 85 % of what they train alone, together.
#   quota_test.sh GRAPH_RUNNER
set -uo pipefail
runner=$PWD/$1
readonly batch=1152 micro_batches=12 rounds=3 min_ratio=0.85
. tests/faults/job.sh
[ "$(id -u)" -eq 0 ] || skip "making control groups needs root"
[ "$(nproc)" -ge 2 ] || skip "two workers need two processors"

# The folder of this process's group of the cpu controller, of version 1 or 2.
own_group() {
  local mount path
  mount=$(sed -n -E 's/^([^ ]+ ){4}([^ ]+) .* - cgroup [^ ]+ ([^ ]+,)?cpu(,.*)?$/\2/p' /proc/self/mountinfo | head -1)
  if [ -n "$mount" ]; then
    path=$(sed -n -E 's/^[0-9]+:([^:]*,)?cpu(,[^:]*)?:(.*)$/\3/p' /proc/self/cgroup)
  else
    mount=$(sed -n -E 's/^([^ ]+ ){4}([^ ]+) .* - cgroup2 .*$/\2/p' /proc/self/mountinfo | head -1)
    path=$(sed -n -E 's/^0::(.*)$/\1/p' /proc/self/cgroup)
    [ -n "$mount" ] && echo +cpu > "$mount${path%/}/cgroup.subtree_control" 2> /dev/null
  fi
  [ -n "$mount" ] && echo "$mount${path%/}"
}
parent=$(own_group)
[ -n "$parent" ] || skip "there is no cpu controller"
group() { echo "$parent/weft-quota-$$-$1"; }
# make_group NAME QUOTA : QUOTA microseconds of each 10 ms, none = as much as there is. Goes before other groups, so
# that what else runs on the machine takes less from it.
make_group() {
  mkdir "$(group "$1")" 2> /dev/null || return 1
  if [ -e "$(group "$1")/cpu.max" ]; then
    { echo "${2:-max} 10000" > "$(group "$1")/cpu.max" && echo 10000 > "$(group "$1")/cpu.weight"; } 2> /dev/null
  else
    { echo 10000 > "$(group "$1")/cpu.cfs_period_us" && echo "${2:--1}" > "$(group "$1")/cpu.cfs_quota_us" &&
      echo 20480 > "$(group "$1")/cpu.shares"; } 2> /dev/null
  fi
}

workers=()
own_folder clean_up
clean_up() {
  [ ${#workers[@]} -gt 0 ] && kill "${workers[@]}" 2> /dev/null && wait "${workers[@]}" 2> /dev/null
  for name in whole half rest; do [ -d "$(group $name)" ] && rmdir "$(group $name)"; done
}
make_group whole 10000 && make_group half 5000 && make_group rest || skip "no control groups can be made in $parent"

make_data $batch
"$runner" example lenet -o model.onnx > /dev/null 2>&1 || fail "example lenet"

# within GROUP COMMAND... : becomes the command, in that group.
within() { exec bash -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$(group "$1")" "${@:2}"; }
host() { printf '  - name: %s\n    workers:\n      - {address: "unix:%s", threads: 1}\n' "$1" "$PWD/$1"; }
for name in whole half; do
  within $name "$runner" worker --allow-path / --listen "unix:$PWD/$name" 2> "$name.worker.log" &
  workers+=($!)
  { echo "hosts:"; host $name; } > $name.yaml
done
{ echo "hosts:"; host whole; host half; } > both.yaml

# job COMMAND CLUSTER FLAGS...
job() {
  (within rest timeout 120 "$runner" "$1" model.onnx --data x=images.npy --labels labels.npy --optimizer sgd \
    --lr 0.01 --batch $batch --micro-batches $micro_batches --cluster "$2.yaml" "${@:3}")
}
# rate CLUSTER STEPS FLAGS... : images per second of all steps but the first five.
rate() {
  job train "$1" --steps "$2" --metrics "$1.csv" -o trained.onnx "${@:3}" > "$1.log" 2>&1 || cat "$1.log" >&2
  awk -F, 'NR > 6 && $4 > 0 { steps++; inverse += 1 / $4 } END { print int(steps / inverse) }' "$1.csv"
}

job calibrate both -o profile.yaml > calibrate.log 2>&1 || fail "calibrate: $(tail -3 calibrate.log)"
job plan both --calibration profile.yaml --explain 2>&1 | head -2
ratios=()
for _ in $(seq $rounds); do
  whole=$(rate whole 40) half=$(rate half 30)
  together=$(rate both 60 --calibration profile.yaml --run-history '')
  ratios+=("$(awk -v a="$whole" -v b="$half" -v c="$together" 'BEGIN { printf "%.3f", c / (a + b) }')")
  echo "images per second: $whole alone with a whole processor, $half with half of one, $together together: ${ratios[-1]}"
  awk -v a="$whole" -v b="$half" 'BEGIN { exit !(b > 0.3 * a && b < 0.7 * a) }' || fail "the quotas are not those of a half and a whole processor"
done
grep -E 'shares|^plan ' both.log
median=$(printf '%s\n' "${ratios[@]}" | sort -g | sed -n "$(((rounds + 1) / 2))p")
echo "median $median of the sum of their own speeds; at least $min_ratio is wanted"
awk -v r="$median" -v min_ratio=$min_ratio 'BEGIN { exit !(r >= min_ratio) }' || fail "$median of the sum of their own speeds"

conclude passed
