"""Trains models for a few steps and loads what comes out in onnxruntime: outputs, names, metadata. No times.

A row has the largest difference between onnxruntime's outputs and `graph_runner run`'s of the trained file, by the largest output,
and what differs from the file that was trained beside the values of weights.
"""
import difflib
import os
import subprocess
import tempfile

import numpy as np
import onnx
import onnxruntime

import pairing
import rows

TOLERANCE = 1e-4
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


def saved(folder, name, value):
    path = os.path.join(folder, name + ".npy")
    np.save(path, value)
    return path


def train(bench, name, path, source, folder):
    """Trains three steps. The trained file, and the first batch of each input."""
    classes, flags = MODELS[name]
    weights = {t.name for t in source.graph.initializer}
    inputs = [i for i in source.graph.input if i.name not in weights]
    batch = inputs[0].type.tensor_type.shape.dim[0].dim_value or BATCH
    files = {i.name: saved(folder, i.name, sample(i, 3 * batch, classes)) for i in inputs}
    labels = [3 * batch, 64] if "gpt" in name else [3 * batch]
    labels = files.get("labels") or saved(folder, "labels", np.random.default_rng(0).integers(0, classes, labels))
    trained = os.path.join(folder, "trained.onnx")
    done = subprocess.run([bench.programs.path("graph_runner"), "train", path, "--steps", "3", "--batch", str(batch), "--lr",
                           "0.001", "--no-scale", "-o", trained, *flags, "--labels", labels,
                           "--data", ",".join(k + "=" + v for k, v in files.items() if k != "labels")],
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("training: " + done.stderr.strip().splitlines()[-1])
    return trained, {i.name: np.load(files[i.name])[:batch] for i in inputs}


def our_outputs(bench, model, feeds, names, folder):
    command = [bench.programs.path("graph_runner"), "run", model, "--output-dir", folder]
    for key, value in feeds.items():
        command += ["--input", key + "=" + saved(folder, "feed." + key, value)]
    subprocess.run(command, check=True, capture_output=True)
    return [np.load(os.path.join(folder, name + ".npy")) for name in names]


def largest_gap(ours, theirs):
    return float(max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(ours, theirs)))


def checked(bench, about, name):
    path = os.path.join(bench.corpora, name + ".onnx")
    source = onnx.load(path)
    with tempfile.TemporaryDirectory() as folder:
        trained, feeds = train(bench, name, path, source, folder)
        session = onnxruntime.InferenceSession(trained, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        theirs = session.run(names, feeds)
        gap = largest_gap(our_outputs(bench, trained, feeds, names, folder), theirs)
        before = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(names, feeds)
        changed = differences(skeleton(source), skeleton(onnx.load(trained)))
    pairing.hold_equal("outputs", gap, TOLERANCE)
    return rows.measured(about, [gap], unit="gap", moved=largest_gap(before, theirs), changed=changed)


def run(bench):
    bench.need_corpora()
    for name in bench.chosen(list(MODELS)):
        about = rows.row("exports", name, "onnxruntime")
        yield rows.guarded(about, lambda: checked(bench, about, name))
