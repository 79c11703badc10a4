#!/usr/bin/env python3
"""Times single operators here and in onnxruntime: the same model, inputs and threads, taken in turns.

For developers: needs the PyPI packages onnx, onnxruntime and numpy, which nothing else here does.

    bazel build //tools/bench:model_timer
    tools/bench/operators_against_onnxruntime.py [--threads N] [--quantile Q] [PART_OF_A_NAME ...]

Prints the time of the operator's kernel on either side, by either side's own profile, and their ratio (below 1: we are
faster); and the same for a whole run, which here copies inputs and outputs. Times are medians; where other processes
keep the cores busy, --quantile 0.1 compares the runs that they left alone.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROUNDS = 12
SECONDS_PER_ROUND = 0.06
REST = 0.03  # until the other side's threads no longer spin


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


class Timer:
    """Our side, in a process of its own."""

    def __init__(self, binary, folder, case, threads):
        arguments = [binary, os.path.join(folder, "model.onnx"), str(threads)]
        for name, value in case.inputs.items():
            path = os.path.join(folder, name + ".npy")
            np.save(path, value)
            arguments.append("%s=%s" % (name, path))
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, runs):
        self.process.stdin.write("%d\n" % runs)
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("model_timer ended")
        numbers = [float(text) for text in line.split()]
        return numbers[0::2], numbers[1::2]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def quantile(times, which):
    return sorted(times)[min(len(times) - 1, int(which * len(times)))]


def compare(case, binary, threads, which):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save(case.model, path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(folder, "profile")
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

        def theirs(runs):
            times = []
            for _ in range(runs):
                start = time.perf_counter()
                session.run(None, case.inputs)
                times.append(time.perf_counter() - start)
            return times

        timer = Timer(binary, folder, case, threads)
        once = max(min(theirs(3)), min(timer.run(3)[0]))
        runs = max(2, min(1000, int(SECONDS_PER_ROUND / once)))
        ours, our_kernels, other = [], [], []
        for _ in range(ROUNDS):
            time.sleep(REST)
            whole, kernels = timer.run(runs)
            ours += whole
            our_kernels += kernels
            time.sleep(REST)
            other += theirs(runs)
        timer.close()
        profile = session.end_profiling()
        with open(profile) as file:
            events = [event for event in json.load(file) if event["name"].endswith("_kernel_time")]
        os.remove(profile)
        # One run has as many events as the optimized model has nodes.
        per_run = max(1, round(len(events) / (len(other) + 3)))
        sums = [sum(event["dur"] for event in events[i:i + per_run]) / 1e6
                for i in range(3 * per_run, len(events), per_run)]
        return [quantile(times, which) for times in (our_kernels, sums, ours, other)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only cases whose names contain one of these")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quantile", type=float, default=0.5, help="of the times; 0.5, the default, is their median")
    parser.add_argument("--timer", default="bazel-bin/tools/bench/model_timer")
    arguments = parser.parse_args()
    print("onnxruntime %s, %d threads" % (onnxruntime.__version__, arguments.threads))
    print("%-40s %9s %9s %6s %9s %9s %6s" % ("operator", "kernel ms", "theirs", "ratio", "run ms", "theirs", "ratio"))
    for case in cases():
        if arguments.names and not any(name in case.name for name in arguments.names):
            continue
        try:
            times = compare(case, arguments.timer, arguments.threads, arguments.quantile)
            kernel, their_kernel, run, their_run = [1e3 * t for t in times]
        except Exception as error:  # one side cannot run the case: say so and go on
            print("%-40s %s" % (case.name, str(error).splitlines()[0]))
            continue
        print("%-40s %9.3f %9.3f %6.2f %9.3f %9.3f %6.2f" % (case.name, kernel, their_kernel, kernel / their_kernel,
                                                            run, their_run, run / their_run), flush=True)


if __name__ == "__main__":
    main()
