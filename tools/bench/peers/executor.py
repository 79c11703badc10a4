"""What running a node costs beside its arithmetic: a chain of 1,000 operators on one float, against onnxruntime."""
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

import inference
import operators
import pairing
import rows

NODES = 1000


class Chain:
    """y = op(op(... x)), in the form that operators.as_case wants."""

    def __init__(self, op):
        self.name = "%d x %s of one float" % (NODES, op)
        self.inputs = {"x": np.array([0.5], np.float32)}
        nodes = [helper.make_node(op, ["v%d" % i if i else "x"], ["v%d" % (i + 1)]) for i in range(NODES)]
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "v%d" % NODES)]
        graph = helper.make_graph(nodes, "chain", infos[:1], infos[1:])
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8)
        onnx.checker.check_model(self.model)


def timed(bench, about, chain):
    def measure(ours, theirs, gap):
        once = max(inference.seconds(ours, 2), inference.seconds(theirs, 2))
        runs = pairing.runs_of_a_round(once, bench.seconds)
        sides = [lambda: 1e9 * inference.seconds(ours, runs) / NODES, lambda: 1e9 * inference.seconds(theirs, runs) / NODES]
        return rows.measured(about, *pairing.take_turns(sides, bench.rounds, bench.pause), unit="ns per node", difference=gap)

    with tempfile.TemporaryDirectory() as folder:
        return inference.compared(bench, operators.as_case(chain, folder), about["threads"], measure)


def run(bench):
    bench.programs.path("model_timer")
    for op in bench.chosen(["Sin", "Neg"]):  # two of Neg may be folded, two of Sin not
        chain = Chain(op)
        about = rows.row("executor", chain.name, inference.PEER, 1)
        yield rows.guarded(about, lambda: timed(bench, about, chain))
