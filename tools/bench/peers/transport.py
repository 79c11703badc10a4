"""Messages between two ranks against raw sockets: the lines that //distributed:transport_benchmark prints.

The program alternates both in itself. Each round here is a run of it, with the medians that it prints.
"""
import subprocess

import machine
import printed
import rows

OURS = ("grpc/unix", "shared memory")
PEERS = ("raw tcp", "raw unix")


def run(bench):
    program = bench.programs.path("transport_benchmark")
    rounds = []
    for _ in range(1 if bench.quick else 5):
        done = subprocess.run([program], capture_output=True, text=True, check=True)
        rounds.append(printed.speeds(done.stdout))
    for size in rounds[0]:
        gigabytes = int(size.split()[0]) * 2**20 / 1e9
        for ours in OURS:
            for peer in PEERS:
                if ours in rounds[0][size] and peer in rounds[0][size]:
                    seconds = [[gigabytes / found[size][name] for found in rounds] for name in (ours, peer)]
                    yield rows.measured(rows.row("transport", "%s, %s" % (size, ours), peer, machine.cores()), *seconds)
