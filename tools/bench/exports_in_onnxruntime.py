#!/usr/bin/env python3
"""Trains models for a few steps and loads what comes out in onnxruntime: outputs, names, metadata.

For developers: needs onnxruntime, onnx and numpy (PyPI's), which nothing else here does, and the shared data,
unpacked (WEFT_CORPORA).

    tools/bench/exports_in_onnxruntime.py [--models mlp_mnist,gpt_char]

For each model: the largest difference between onnxruntime's outputs and `graph_runner run`'s of the trained file, by
the largest output, and what differs from the file that was trained beside the values of weights.
"""
import argparse
import difflib
import os
import subprocess
import tempfile

import numpy as np
import onnx
import onnxruntime

BATCH = 8
# What a model is trained with: the number of classes, and flags.
MODELS = {
    "training-models/mlp_mnist": (10, []),
    "training-models/lenet_mnist": (10, []),
    "training-models/lstm_mnist": (10, []),
    "training-models/gpt_char": (65, []),
    "training-models/resnet18_train": (10, []),
    "training-models/mlp_mnist_loss": (10, ["--loss", "output:loss"]),
    "training-models/gpt_char_loss": (65, ["--loss", "output:loss"]),
    "models/mnist8/model": (10, ["--trainable", "*"]),
    "models/cct2_op20/model": (10, []),
}


def sample(value, count, classes):
    """Random values for a graph input, `count` along axis 0; 64 along other axes that the file leaves open."""
    tensor = value.type.tensor_type
    shape = [count] + [d.dim_value or 64 for d in tensor.shape.dim[1:]]
    random = np.random.default_rng(len(value.name))
    if tensor.elem_type == onnx.TensorProto.INT64:
        return random.integers(0, classes, shape)
    return random.random(shape, np.float32)


def skeleton(model):
    """The model without the values of its tensors, as text."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in model.graph.initializer:
        for field in ("raw_data", "float_data", "int64_data", "int32_data", "double_data", "external_data",
                      "data_location"):
            tensor.ClearField(field)
    return str(model).splitlines()


def differences(before, after):
    return [line for line in difflib.unified_diff(before, after, lineterm="", n=0)
            if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def check(name, classes, flags, arguments):
    path = os.path.join(arguments.corpora, name + ".onnx")
    source = onnx.load(path)
    weights = {t.name for t in source.graph.initializer}
    inputs = [i for i in source.graph.input if i.name not in weights]
    with tempfile.TemporaryDirectory() as folder:
        def save(what, value):
            file = os.path.join(folder, what + ".npy")
            np.save(file, value)
            return file

        fixed = [i.type.tensor_type.shape.dim[0].dim_value for i in inputs]
        batch = fixed[0] or BATCH
        command = [arguments.runner, "train", path, "--steps", "3", "--batch", str(batch), "--lr", "0.001", "--no-scale",
                   "-o", os.path.join(folder, "trained.onnx")] + flags
        files = {i.name: save(i.name, sample(i, 3 * batch, classes)) for i in inputs}
        command += ["--data", ",".join(k + "=" + v for k, v in files.items() if k != "labels")]
        labels = [3 * batch, 64] if "gpt" in name else [3 * batch]
        command += ["--labels", files.get("labels") or
                    save("labels", np.random.default_rng(0).integers(0, classes, labels))]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            return "training: " + done.stderr.strip()
        trained = os.path.join(folder, "trained.onnx")
        feeds = {i.name: np.load(files[i.name])[:batch] for i in inputs}
        session = onnxruntime.InferenceSession(trained, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        theirs = session.run(names, feeds)
        command = [arguments.runner, "run", trained, "--output-dir", folder]
        for key, value in feeds.items():
            command += ["--input", key + "=" + save("feed." + key, value)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        gap = max(np.abs(np.load(os.path.join(folder, n + ".npy")) - t).max() / np.abs(t).max()
                  for n, t in zip(names, theirs))
        before = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(names, feeds)
        moved = max(np.abs(b - t).max() / np.abs(t).max() for b, t in zip(before, theirs))
        lines = differences(skeleton(source), skeleton(onnx.load(trained)))
        return "%.1e of the largest output (training moved it by %.1e); %s" % (
            gap, moved, "nothing else differs" if not lines else "%d lines differ: %s" % (len(lines), lines[:6]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--corpora", default=os.environ.get("WEFT_CORPORA", ""))
    parser.add_argument("--runner", default="bazel-bin/tools/graph_runner")
    arguments = parser.parse_args()
    print("onnxruntime", onnxruntime.__version__)
    for name, (classes, flags) in MODELS.items():
        if any(model in name for model in arguments.models):
            print("%-32s %s" % (name, check(name, classes, flags, arguments)), flush=True)


if __name__ == "__main__":
    main()
