#!/usr/bin/env bash
# Two machines (network namespaces) behind a link of 10 Mbit/s: calibration measures the link, the plan that is found
# leaves one machine out, and a run that is made to use both is slower, as was predicted.
#   slow_link_test.sh GRAPH_RUNNER
set -uo pipefail
runner=$PWD/$1
. tests/faults/job.sh
[ "$(id -u)" -eq 0 ] || skip "making network namespaces needs root"
PATH=$PATH:/usr/sbin:/sbin
command -v ip > /dev/null && command -v tc > /dev/null || skip "there is no ip or tc (Debian's iproute2)"

own_folder clean_up
space() { echo "weft-link-$$-$1"; }
workers=()
clean_up() {
  [ ${#workers[@]} -gt 0 ] && kill "${workers[@]}" 2> /dev/null && wait "${workers[@]}" 2> /dev/null
  for i in 0 1; do ip netns del "$(space $i)" 2> /dev/null; done  # with its end of the link
}
make_link() {
  ip netns add "$(space 0)" && ip netns add "$(space 1)" || return 1
  ip -n "$(space 0)" link add weft0 type veth peer name weft1 netns "$(space 1)" || return 1
  for i in 0 1; do
    ip -n "$(space $i)" addr add "10.99.0.$((i + 1))/24" dev "weft$i" && ip -n "$(space $i)" link set lo up &&
      ip -n "$(space $i)" link set "weft$i" up &&
      tc -n "$(space $i)" qdisc add dev "weft$i" root tbf rate 10mbit burst 16kb latency 200ms || return 1
  done
}
make_link 2> link.log || skip "no namespaces with a slow link can be made: $(tail -1 link.log)"

make_data 512
"$runner" example mlp -o model.onnx > /dev/null 2>&1 || fail "example mlp"
for i in 0 1; do
  ip netns exec "$(space $i)" "$runner" worker --allow-path / --listen "10.99.0.$((i + 1)):4000" --insecure-network 2> "worker$i.log" &
  workers+=($!)
done
cat > cluster.yaml <<'YAML'
hosts:
  - name: alpha
    workers:
      - {address: "10.99.0.1:4000", threads: 1}
  - name: beta
    workers:
      - {address: "10.99.0.2:4000", threads: 1}
YAML
# job NAME COMMAND FLAGS... : from the first machine; all that is said in NAME.log.
job() {
  timeout 150 ip netns exec "$(space 0)" "$runner" "$2" model.onnx --data x=images.npy --labels labels.npy \
    --optimizer sgd --lr 0.01 --batch 512 --cluster cluster.yaml --insecure-network "${@:3}" > "$1.log" 2>&1 ||
    fail "$1: $(tail -3 "$1.log")"
}
# seconds NAME : median of the steps but the first, from the samples per second of NAME.csv.
seconds() { awk -F, 'NR > 2 && $4 > 0 { print 512 / $4 }' "$1.csv" | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
# holds CONDITION VALUES... : an awk condition of a, b and c.
holds() { awk -v a="${2:-0}" -v b="${3:-0}" -v c="${4:-0}" "BEGIN { exit !($1) }"; }

job calibrate calibrate -o profile.yaml
grep '^host ' calibrate.log
# 10 Mbit/s are 1.25 MB/s, headers included; what fits into the bucket of tbf goes faster.
rate=$(sed -n -E 's/^host 0 to host 1: .*, ([0-9.]+) MB\/s; .*/\1/p' calibrate.log)
holds 'a > 0.9 && a < 1.6' "${rate:-0}" || fail "the link was measured as ${rate:-nothing} MB/s"

job found plan --calibration profile.yaml --explain
head -2 found.log
grep -q '^found .* on 1 of 2 workers' found.log || fail "the plan does not leave a machine out: $(head -3 found.log)"
job all plan --calibration profile.yaml --parallel all
note=$(grep -o '1 of 2 workers would be [0-9.]* times as fast (predicted)' all.log)
echo "${note:-no note}"
[ -n "$note" ] || fail "--parallel all does not say that one would be faster: $(cat all.log)"

job one train --calibration profile.yaml --run-history '' --steps 200 --metrics one.csv -o one.onnx
job both train --calibration profile.yaml --run-history '' --parallel all --steps 25 --metrics both.csv -o both.onnx
job data train --calibration profile.yaml --run-history '' --parallel dp=2 --steps 6 --metrics data.csv -o data.onnx
one=$(seconds one) both=$(seconds both) data=$(seconds data)
echo "seconds of a step: $one on one machine, $both on both as the search would use them, $data with dp=2"
grep -h '^step ' one.log both.log data.log
holds 'a > 0 && b > 1.5 * a' "$one" "$both" || fail "both machines are not slower than one: $both and $one s"
# The gradients of 235 thousand parameters take 0.75 s over this link, whoever computes.
holds 'a > 0 && b > 10 * a' "$one" "$data" || fail "dp=2 is not slower than one machine: $data and $one s"
predicted=$(sed -n -E 's/^step +predicted ([0-9.]+) s, .*/\1/p; s/^step +predicted ([0-9.e+]+) ms, .*/\1e-3/p' data.log | head -1)
holds 'b > 0.7 * a && b < 1.3 * a' "$data" "${predicted:-0}" || fail "dp=2 took $data s, predicted ${predicted:-nothing}"

conclude passed
