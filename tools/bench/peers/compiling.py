"""From a file to a model that can run, against onnxruntime's sessions; and compiling a training step, which has no peer."""
import subprocess

import onnx

import inference
import machine
import pairing
import printed
import rows

QUICK_MICRO_BATCHES, MICRO_BATCHES = "16", "16,64"


def nodes_of(path):
    return len(onnx.load(path, load_external_data=False).graph.node)


def opening_seconds(side, is_ours):
    """Of opening the model once more. Our first run compiles: what it takes beyond another run counts as well."""
    _, opening, first = side.ask("open").split()
    if not is_ours:
        return float(opening)
    return float(opening) + max(0.0, float(first) - inference.seconds(side, 1))


def compared(bench, about, case, threads):
    nodes = nodes_of(case.model)

    def measure(ours, theirs, gap):
        mine, other = pairing.take_turns([lambda: 1e6 * opening_seconds(ours, True) / nodes,
                                          lambda: 1e6 * opening_seconds(theirs, False) / nodes],
                                         bench.rounds, bench.pause)
        return rows.measured(about, mine, other, unit="us per node", nodes=nodes, difference=gap)

    return inference.compared(bench, case, threads, measure)


def training_steps(bench):
    """Rows of compile_time's table: CPU microseconds per buffer of the step of a model."""
    micro = QUICK_MICRO_BATCHES if bench.quick else MICRO_BATCHES
    done = subprocess.run([bench.programs.path("compile_time"), "--micro=" + micro], capture_output=True, text=True,
                          check=True, env=machine.environment(bench.limit), preexec_fn=machine.on_cores(1))
    yield from printed.compile_rows(done.stdout)


def run(bench):
    bench.programs.path("model_timer")
    for name, make in bench.chosen(inference.cases(bench)).items():
        about = rows.row("compile", name, inference.PEER, 1)
        yield rows.guarded(about, lambda: compared(bench, about, make(), 1))
    if not bench.cases:
        yield from training_steps(bench)
