# Machines that are network namespaces, each behind a link of its own to a router. Sourced after own_world, which
# takes them away again. There is no netem on many machines; iptables and tbf are enough for what is done here.

# make_network NAME... : machines NAME at 10.99.1.2, 10.99.2.2, ...; their links are named to-NAME at the router, weft0
# at the machine.
declare -A address=()
make_network() {
  local name number=0
  ip netns add router && ip netns exec router sysctl -qw net.ipv4.ip_forward=1 || return 1
  for name in "$@"; do
    number=$((number + 1))
    address[$name]=10.99.$number.2
    ip netns add "$name" && ip -n "$name" link set lo up &&
      ip -n router link add "to-$name" type veth peer name weft0 netns "$name" &&
      ip -n router addr add "10.99.$number.1/24" dev "to-$name" && ip -n router link set "to-$name" up &&
      link_up "$name" || return 1
  done
}
link_up() {
  ip -n "$1" addr replace "${address[$1]}/24" dev weft0 && ip -n "$1" link set weft0 up &&
    ip -n "$1" route replace default via "${address[$1]%.2}.1"
}
# The machine is gone, as far as anybody can tell: nothing is said to the other ends of its connections.
link_down() { ip -n "$1" link set weft0 down; }

# rule MATCH AND TARGET... : for packets that pass the router.
rule() { ip netns exec router iptables -w -A FORWARD "$@"; }
heal() { ip netns exec router iptables -w -F FORWARD; }
# cut FROM [TO] : no packet of FROM comes to TO; to anybody, without TO.
cut_from() { rule -s "${address[$1]}" ${2:+-d "${address[$2]}"} -j DROP; }
cut_to() { rule -d "${address[$1]}" -j DROP; }
# lose PROBABILITY : of all packets, in both directions.
lose() { rule -m statistic --mode random --probability "$1" -j DROP; }
# reset_from FROM TO : whoever of FROM sends to TO is told that the connection is no more.
reset_from() { rule -p tcp -s "${address[$1]}" -d "${address[$2]}" -j REJECT --reject-with tcp-reset; }
# slow NAME RATE : of the machine's link, in both directions; "none" takes that back.
slow() {
  local end
  for end in "router to-$1" "$1 weft0"; do
    set -- "$1" "$2" $end
    if [ "$2" = none ]; then
      tc -n "$3" qdisc del dev "$4" root
    else
      tc -n "$3" qdisc replace dev "$4" root tbf rate "$2" burst 16kb latency 400ms
    fi
  done
}
# on NAME COMMAND... : becomes the command, on that machine.
on() { exec ip netns exec "$1" "${@:2}"; }
