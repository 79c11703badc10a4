"""Single operators against onnxruntime: a model of one node, with the time of its kernel and of a whole run on either side.

Whole runs copy inputs and outputs here. The time of a kernel is that of each side's own profile.
"""
import os
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import inference
import pairing
import rows


def floats(*shape):
    return np.random.RandomState(len(shape) + sum(shape)).standard_normal(shape).astype(np.float32)


class Case:
    """One node; `constants` are initializers, `inputs` are fed."""

    def __init__(self, name, op, inputs, constants=(), outputs=1, order=None, opset=20, **attributes):
        self.name = name
        self.inputs = dict(inputs)
        names = order or list(self.inputs) + [name for name, _ in constants]
        produced = ["y%d" % i for i in range(outputs)]
        node = helper.make_node(op, names, produced, **attributes)
        types = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("int64"): TensorProto.INT64}
        graph = helper.make_graph(
            [node], "case",
            [helper.make_tensor_value_info(k, types[v.dtype], v.shape) for k, v in self.inputs.items()],
            [helper.make_tensor_value_info(p, TensorProto.FLOAT, None) for p in produced],
            [numpy_helper.from_array(np.asarray(value), key) for key, value in constants])
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def cases():
    image = floats(8, 64, 56, 56)
    yield Case("Conv 3x3 64 to 64, 8x56x56", "Conv", {"x": image}, [("w", floats(64, 64, 3, 3)), ("b", floats(64))],
               pads=[1, 1, 1, 1])
    yield Case("Conv 1x1 256 to 64, 8x28x28", "Conv", {"x": floats(8, 256, 28, 28)}, [("w", floats(64, 256, 1, 1))])
    yield Case("Conv 7x7/2 3 to 64, 4x224x224", "Conv", {"x": floats(4, 3, 224, 224)}, [("w", floats(64, 3, 7, 7))],
               pads=[3, 3, 3, 3], strides=[2, 2])
    yield Case("Conv depthwise 3x3 96, 8x56x56", "Conv", {"x": floats(8, 96, 56, 56)}, [("w", floats(96, 1, 3, 3))],
               pads=[1, 1, 1, 1], group=96)
    yield Case("MatMul 1024x768x768, constant", "MatMul", {"a": floats(1024, 768)}, [("b", floats(768, 768))])
    yield Case("MatMul 1x2048x2048, constant", "MatMul", {"a": floats(1, 2048)}, [("b", floats(2048, 2048))])
    yield Case("MatMul 96 of 128x64x128", "MatMul", {"a": floats(96, 128, 64), "b": floats(96, 64, 128)})
    yield Case("Gemm 256x1024x1024 transB, bias", "Gemm", {"a": floats(256, 1024)},
               [("b", floats(1024, 1024)), ("c", floats(1024))], transB=1)
    yield Case("LayerNormalization 1024x768", "LayerNormalization", {"x": floats(1024, 768)},
               [("s", floats(768)), ("b", floats(768))])
    yield Case("Softmax 12288x128", "Softmax", {"x": floats(12288, 128)})
    yield Case("Softmax 64x32000", "Softmax", {"x": floats(64, 32000)})
    yield Case("Gelu 1024x3072", "Gelu", {"x": floats(1024, 3072)})
    yield Case("Gelu tanh 1024x3072", "Gelu", {"x": floats(1024, 3072)}, approximate="tanh")
    yield Case("Transpose 0213, 8x128x12x64", "Transpose", {"x": floats(8, 128, 12, 64)}, perm=[0, 2, 1, 3])
    yield Case("Transpose 2048x2048", "Transpose", {"x": floats(2048, 2048)}, perm=[1, 0])
    yield Case("Transpose to NHWC, 8x64x56x56", "Transpose", {"x": image}, perm=[0, 2, 3, 1])
    yield Case("ReduceSum last of 8192x1024", "ReduceSum", {"x": floats(8192, 1024)}, [("axes", np.array([1]))])
    yield Case("ReduceSum first of 8192x1024", "ReduceSum", {"x": floats(8192, 1024)}, [("axes", np.array([0]))])
    yield Case("ReduceMean 2,3 of 8x64x56x56", "ReduceMean", {"x": image}, [("axes", np.array([2, 3]))])
    yield Case("ReduceMax last of 8192x1024", "ReduceMax", {"x": floats(8192, 1024)}, [("axes", np.array([1]))])
    indices = np.random.RandomState(0).randint(0, 30000, 4096)
    yield Case("Gather 4096 rows of 768", "Gather", {"x": floats(30000, 768), "i": indices})
    yield Case("Gather axis 1, 1024x768", "Gather", {"x": floats(1024, 768), "i": indices[:512] % 768}, axis=1)
    yield Case("Concat axis 0, 4 of 512x1024", "Concat", {k: floats(512, 1024) for k in "abcd"}, axis=0)
    yield Case("Concat axis 1, 3 of 8x64x56x56", "Concat", {k: image for k in "abc"}, axis=1)
    yield Case("Concat last axis, 2 of 4096x64", "Concat", {k: floats(4096, 64) for k in "ab"}, axis=1)
    scales = ("scales", np.array([1, 1, 2, 2], np.float32))
    for mode in ("nearest", "linear", "cubic"):
        yield Case("Resize %s x2, 4x64x56x56" % mode, "Resize", {"x": floats(4, 64, 56, 56)}, [scales],
                   order=["x", "", "scales"], mode=mode)
    yield Case("LSTM 64 steps, 16x128 to 256", "LSTM", {"x": floats(64, 16, 128)},
               [("w", floats(1, 1024, 128) * 0.1), ("r", floats(1, 1024, 256) * 0.1), ("b", floats(1, 2048) * 0.1)],
               hidden_size=256)
    yield Case("LSTM bidirectional 32 steps, 1x64 to 64", "LSTM", {"x": floats(32, 1, 64)},
               [("w", floats(2, 256, 64) * 0.1), ("r", floats(2, 256, 64) * 0.1), ("b", floats(2, 512) * 0.1)],
               hidden_size=64, direction="bidirectional", outputs=3)
    qkv = {k: floats(4, 12, 256, 64) for k in "qkv"}
    yield Case("Attention 4x12 heads, 256x64", "Attention", qkv, opset=23)
    yield Case("Attention causal 1x16 heads, 512x64", "Attention", {k: floats(1, 16, 512, 64) for k in "qkv"},
               opset=23, is_causal=1)


def as_case(node, folder):
    path = os.path.join(folder, "model.onnx")
    onnx.save(node.model, path)
    return inference.Case(node.name, path, inference.saved(node.inputs, folder))


def timed(bench, node, threads):
    """A row for whole runs and one for kernels."""
    whole_about = rows.row("operators", node.name, inference.PEER, threads)
    kernel_about = dict(whole_about, case=node.name + ", kernel")

    def measure(ours, theirs, gap):
        once = max(inference.seconds(ours, 2), inference.seconds(theirs, 2))
        runs = pairing.runs_of_a_round(once, bench.seconds)
        before = 2 + 1  # runs of theirs: these, and the one that waited for the outputs

        def mine():
            numbers = [float(text) for text in ours.ask(runs).split()]
            return pairing.median(numbers[0::2]), pairing.median(numbers[1::2])

        mine_of_rounds, other = pairing.take_turns([mine, lambda: inference.seconds(theirs, runs)], bench.rounds,
                                                   bench.pause)
        kernels = [float(text) for text in theirs.ask("kernels").split()][before:]
        of_rounds = [pairing.median(kernels[i * runs:(i + 1) * runs]) for i in range(bench.rounds)]
        whole, kernel = zip(*mine_of_rounds)
        yield rows.measured(whole_about, list(whole), other, difference=gap)
        # A node that costs nothing (a copy in place) has no time of its own.
        if min(kernel) > 0 and min(of_rounds) > 0:
            yield rows.measured(kernel_about, list(kernel), of_rounds, difference=gap)

    with tempfile.TemporaryDirectory() as folder:
        case = as_case(node, folder)
        return inference.compared(bench, case, threads, lambda *sides: list(measure(*sides)), profile=True)


def run(bench):
    bench.programs.path("model_timer")
    nodes = {node.name: node for node in cases()}
    for node in bench.chosen(nodes).values():
        for threads in bench.threads:
            about = rows.row("operators", node.name, inference.PEER, threads)
            found = rows.guarded(about, lambda: timed(bench, node, threads))
            yield from found if isinstance(found, list) else [found]
