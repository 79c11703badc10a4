#!/usr/bin/env python3
"""Trains the same models on the same batches here and in PyTorch: loss curves, step times, memory.

For developers: needs PyTorch, onnx and numpy (Debian's or PyPI's), which nothing else here does, and the
shared data, unpacked (WEFT_CORPORA).

    tools/bench/training_against_pytorch.py curves [--models gpt_char,lstm_mnist] [--optimizers sgd,adam,adamw]
    tools/bench/training_against_pytorch.py times  [--models ...] [--threads N]
    tools/bench/training_against_pytorch.py held-out [--steps 500]

The models are the shared data's, and `encoder`, which PyTorch exports here: two of its own layers of attention over
the rows of an image.

`curves`: largest relative gap of the losses over 50 steps from the same weights, data and order.
`times`: median time of a step on either side, in turns, and peak memory (PyTorch: its growth since the imports; here:
all of the process). Ours takes all cores; --threads is PyTorch's.
`held-out`: gpt_char's loss on the last tenth of the text, after AdamW has seen --steps batches of the rest.
"""
import argparse
import csv
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

STEPS = 50
RATES = {"sgd": {"mlp_mnist": 0.1, "lenet_mnist": 0.05, "lstm_mnist": 0.5, "gpt_char": 0.1, "resnet18_train": 0.001,
                 "encoder": 0.1}}
BATCH = 64


def idx(path):
    with open(path, "rb") as file:
        data = file.read()
    rank = data[3]
    dims = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(rank)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(dims)


def text_of(corpora):
    """The text as samples of 64 characters, and the characters that follow each."""
    text = open(os.path.join(corpora, "text-iris/tinyshakespeare.txt")).read()
    code = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = np.array([code[c] for c in text], np.int64)
    samples = (len(ids) - 1) // 64
    return ids[:samples * 64].reshape(-1, 64), ids[1:samples * 64 + 1].reshape(-1, 64)


def split_text(corpora, steps):
    """(inputs, labels) of `steps` batches from the first nine tenths, shuffled, and of the last tenth."""
    inputs, labels = text_of(corpora)
    first = len(inputs) * 9 // 10
    rows = np.concatenate([np.random.default_rng(epoch).permutation(first)
                           for epoch in range(steps * BATCH // first + 1)])[:steps * BATCH]
    return (inputs[rows], labels[rows]), (inputs[first:], labels[first:])


def data_of(model, corpora, steps):
    """inputs, labels: all samples of `steps` batches, in order."""
    count = steps * BATCH
    if model == "gpt_char":
        inputs, labels = text_of(corpora)
        rows = np.arange(count) % len(inputs)
        return "idx", inputs[rows], labels[rows]
    if model == "resnet18_train":
        raw = np.fromfile(os.path.join(corpora, "cifar10-subset/train.bin"), np.uint8).reshape(-1, 3073)
        raw = raw[np.arange(count) % len(raw)]
        return "x", raw[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255, raw[:, 0].astype(np.int64)
    images = idx(os.path.join(corpora, "mnist/train-images-idx3-ubyte"))[:count]
    labels = idx(os.path.join(corpora, "mnist/train-labels-idx1-ubyte"))[:count].astype(np.int64)
    shape = {"mlp_mnist": (-1, 784), "lenet_mnist": (-1, 1, 28, 28), "lstm_mnist": (-1, 28, 28),
             "encoder": (-1, 28, 28)}[model]
    return "x", images.reshape(shape).astype(np.float32) / 255, labels


# ---- PyTorch's side

def network(model, w, torch):
    """The forward pass as a function of the inputs; `w` are the file's initializers by name."""
    F = torch.nn.functional

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def mlp(x):
        return linear(F.relu(linear(F.relu(linear(x, "fc1")), "fc2")), "fc3")

    def lenet(x):
        x = F.max_pool2d(F.relu(F.conv2d(x, w["conv1.weight"], w["conv1.bias"], padding=2)), 2)
        x = F.max_pool2d(F.relu(F.conv2d(x, w["conv2.weight"], w["conv2.bias"])), 2)
        return linear(F.relu(linear(F.relu(linear(x.flatten(1), "fc1")), "fc2")), "fc3")

    def lstm(x):
        order = [0, 2, 3, 1]  # ONNX: i, o, f, c; PyTorch: i, f, c, o

        def gates(t):
            return torch.cat([t.chunk(4, 0)[i] for i in order], 0)

        weights = [gates(w["lstm.W"][0]), gates(w["lstm.R"][0]), gates(w["lstm.B"][0][:256]), gates(w["lstm.B"][0][256:])]
        zero = x.new_zeros(1, x.shape[0], 64)
        out = torch.lstm(x.transpose(0, 1), (zero, zero), weights, True, 1, 0.0, True, False, False)
        return linear(out[1][0], "fc")

    def dense(x, name):
        return torch.addmm(w[name + ".bias"], x.reshape(-1, x.shape[-1]), w[name + ".weight"]).view(*x.shape[:-1], -1)

    def norm(x, name):
        return F.layer_norm(x, (x.shape[-1],), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def gpt(ids):
        n, t = ids.shape
        x = F.embedding(ids, w["wte"]) + w["wpe"][:t]
        mask = torch.full((t, t), -1e9, dtype=x.dtype).triu(1)
        for layer in range(4):
            p = "h%d." % layer
            q, k, v = [a.view(n, t, 4, 32).transpose(1, 2) for a in dense(norm(x, p + "ln1"), p + "attn.qkv").chunk(3, -1)]
            scores = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(32) + mask, -1)
            x = x + dense((scores @ v).transpose(1, 2).reshape(n, t, 128), p + "attn.proj")
            x = x + dense(F.gelu(dense(norm(x, p + "ln2"), p + "mlp.fc")), p + "mlp.proj")
        return norm(x, "lnf") @ w["wte"].t()

    def resnet(x):
        def bn(x, name):
            return F.batch_norm(x, w[name + ".running_mean"], w[name + ".running_var"], w[name + ".weight"],
                                w[name + ".bias"], True, 0.1, 1e-5)

        h = F.relu(bn(F.conv2d(x, w["stem.weight"], padding=1), "stem.bn"))
        for stage in range(4):
            for block in range(2):
                n = "layer%d.%d" % (stage + 1, block)
                stride = 2 if block == 0 and stage > 0 else 1
                y = F.relu(bn(F.conv2d(h, w[n + ".conv1.weight"], stride=stride, padding=1), n + ".bn1"))
                y = bn(F.conv2d(y, w[n + ".conv2.weight"], padding=1), n + ".bn2")
                if n + ".down.weight" in w:
                    h = bn(F.conv2d(h, w[n + ".down.weight"], stride=stride), n + ".down.bn")
                h = F.relu(y + h)
        return linear(h.mean((2, 3)), "fc")

    return {"mlp_mnist": mlp, "lenet_mnist": lenet, "lstm_mnist": lstm, "gpt_char": gpt, "resnet18_train": resnet}[model]


def encoder(torch):
    """28 rows as tokens through two layers of attention: always with the same weights."""
    torch.manual_seed(7)
    torch.backends.mha.set_fastpath_enabled(False)

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Linear(28, 64)
            self.positions = torch.nn.Parameter(0.1 * torch.randn(28, 64))
            layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, activation="gelu", batch_first=True,
                                                     norm_first=True)
            self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = torch.nn.Linear(64, 10)

        def forward(self, x):
            return self.head(self.layers(self.embed(x) + self.positions).mean(1))

    model = Encoder()
    with torch.no_grad():  # the layers begin as copies of one
        for parameter in model.layers.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


def export(arguments):
    import torch
    batch = torch.export.Dim("batch")
    torch.onnx.export(encoder(torch).eval(), (torch.zeros(2, 28, 28),), arguments.path, input_names=["x"],
                      output_names=["logits"], dynamo=True, external_data=False, dynamic_shapes={"x": {0: batch}})


def optimizer_of(name, model, parameters, torch):
    if name == "sgd":
        return torch.optim.SGD(parameters, RATES["sgd"][model])
    if name == "adam":
        return torch.optim.Adam(parameters, 1e-3)
    return torch.optim.AdamW(parameters, 1e-3, weight_decay=0.01)


def pytorch(arguments):
    """The child process: prints losses, seconds of each step and the growth of peak memory as JSON."""
    import onnx
    import onnx.numpy_helper
    import torch
    torch.set_num_threads(arguments.threads)
    path = os.path.join(arguments.corpora, "training-models", arguments.model + ".onnx")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if arguments.held_out:
        (inputs, labels), held_out = split_text(arguments.corpora, arguments.steps)
    else:
        _, inputs, labels = data_of(arguments.model, arguments.corpora, arguments.steps)
    dtype = torch.float64 if arguments.double else torch.float32
    if arguments.model == "encoder":
        forward = encoder(torch).to(dtype)
        parameters = list(forward.parameters())
    else:
        w = {}
        for tensor in onnx.load(path).graph.initializer:
            value = torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
            w[tensor.name] = value.to(dtype) if value.is_floating_point() else value
        parameters = [v for k, v in w.items()
                      if v.is_floating_point() and not k.startswith("const.") and ".running_" not in k]
        for value in parameters:
            value.requires_grad_(True)
        forward = network(arguments.model, w, torch)
    optimizer = optimizer_of(arguments.optimizer, arguments.model, parameters, torch)
    losses, seconds = [], []
    for step in range(arguments.steps):
        x = torch.from_numpy(inputs[step * BATCH:(step + 1) * BATCH])
        y = torch.from_numpy(labels[step * BATCH:(step + 1) * BATCH])
        start = time.perf_counter()
        logits = forward(x.to(dtype) if x.is_floating_point() else x)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    result = {"losses": losses, "seconds": seconds, "kilobytes": growth, "version": torch.__version__}
    if arguments.held_out:
        with torch.no_grad():
            x, y = (torch.from_numpy(part) for part in held_out)
            total = 0.0
            for row in range(0, len(x), BATCH):
                logits = forward(x[row:row + BATCH])
                total += torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                                           y[row:row + BATCH].reshape(-1), reduction="sum").item()
        result["held_out"] = total / y.numel()
    print(json.dumps(result))


# ---- this project's side

def write_data(model, arguments, steps, folder):
    name, inputs, labels = data_of(model, arguments.corpora, steps)
    np.save(os.path.join(folder, "inputs.npy"), inputs)
    np.save(os.path.join(folder, "labels.npy"), labels)
    return ["--data", name + "=" + os.path.join(folder, "inputs.npy"),
            "--labels", os.path.join(folder, "labels.npy")]


def weft(model, optimizer, arguments, steps, batch=BATCH):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(arguments.corpora, "training-models", model + ".onnx")
        if model == "encoder":
            path = os.path.join(folder, "encoder.onnx")
            subprocess.run([sys.executable, __file__, "export", "--path", path], check=True, stdout=subprocess.DEVNULL)
        command = [arguments.runner, "train", path,
                   "--steps", str(steps), "--batch", str(batch), "--no-shuffle", "--optimizer", optimizer,
                   "--metrics", os.path.join(folder, "metrics.csv"), "--output", "json"]
        command += write_data(model, arguments, steps, folder)
        if optimizer == "sgd":
            command += ["--lr", str(RATES["sgd"][model])]
        else:
            command += ["--lr", "0.001"]
        if optimizer == "adamw":
            command += ["--weight-decay", "0.01"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, errors = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(errors.strip().splitlines()[-1] if errors.strip() else "exit %d" % process.returncode)
        report = json.loads(out)
        with open(os.path.join(folder, "metrics.csv")) as file:
            rows = list(csv.DictReader(file))
        return {"losses": [float(row["loss"]) for row in rows],
                "rate": report["samples_per_second"],
                "kilobytes": max(m["peak_bytes"] for m in report["memory"]) // 1024}


def child(model, optimizer, arguments, steps, double=False):
    command = [sys.executable, __file__, "pytorch", "--model", model, "--optimizer", optimizer, "--steps", str(steps),
               "--corpora", arguments.corpora, "--threads", str(arguments.threads)] + (["--double"] if double else [])
    command += ["--held-out"] if arguments.what == "held-out" else []
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def curves(arguments):
    print("%-16s %-8s %12s %12s" % ("model", "rule", "largest gap", "float32's"))
    for model in arguments.models:
        for optimizer in arguments.optimizers:
            steps = 4 if model == "resnet18_train" else STEPS
            truth = child(model, optimizer, arguments, steps, double=True)["losses"]
            single = child(model, optimizer, arguments, steps)["losses"]
            ours = weft(model, optimizer, arguments, steps)["losses"]

            def gap(losses):
                return max(abs(a - b) / abs(b) for a, b in zip(losses, truth))

            print("%-16s %-8s %12.2e %12.2e" % (model, optimizer, gap(ours), gap(single)), flush=True)


def times(arguments):
    print("%d threads, batch %d" % (arguments.threads, BATCH))
    print("%-16s %10s %10s %6s %12s %12s %6s" % ("model", "ours ms", "torch ms", "ratio", "ours MB", "torch MB", "ratio"))
    for model in arguments.models:
        steps = 12 if model == "resnet18_train" else 60
        ours, theirs, memory, their_memory = [], [], [], []
        for _ in range(arguments.rounds):
            mine = weft(model, "sgd", arguments, steps)
            ours.append(BATCH / mine["rate"])
            memory.append(mine["kilobytes"])
            other = child(model, "sgd", arguments, steps)
            theirs.append(sorted(other["seconds"])[steps // 2])
            their_memory.append(other["kilobytes"])
        a, b = sorted(ours)[len(ours) // 2], sorted(theirs)[len(theirs) // 2]
        m, n = min(memory) / 1024, min(their_memory) / 1024
        print("%-16s %10.2f %10.2f %6.2f %12.0f %12.0f %6.2f" % (model, a * 1e3, b * 1e3, a / b, m, n, m / n), flush=True)


def held_out(arguments):
    steps = arguments.steps or 500
    theirs = child("gpt_char", "adamw", arguments, steps)
    parts = split_text(arguments.corpora, steps)
    with tempfile.TemporaryDirectory() as folder:
        data = []
        for name, (inputs, labels) in zip(("train", "test"), parts):
            files = [os.path.join(folder, name + what) for what in (".inputs.npy", ".labels.npy")]
            np.save(files[0], inputs)
            np.save(files[1], labels)
            data.append(["--data", "idx=" + files[0], "--labels", files[1], "--batch", str(BATCH)])
        model = os.path.join(arguments.corpora, "training-models", "gpt_char.onnx")
        trained = os.path.join(folder, "trained.onnx")
        subprocess.run([arguments.runner, "train", model] + data[0] +
                       ["--steps", str(steps), "--no-shuffle", "--optimizer", "adamw", "--lr", "0.001",
                        "--weight-decay", "0.01", "-o", trained] + arguments.flags.split(),
                       check=True, stdout=subprocess.DEVNULL)
        out = subprocess.run([arguments.runner, "eval", trained] + data[1] + ["--metric", "loss", "--output", "json"],
                             check=True, stdout=subprocess.PIPE, text=True).stdout
    ours = json.loads(out)["loss"]
    print("gpt_char, adamw, %d steps: held-out loss %.5f here, %.5f in PyTorch, ratio %.5f" %
          (steps, ours, theirs["held_out"], ours / theirs["held_out"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["curves", "times", "held-out", "pytorch", "export"])
    parser.add_argument("--models", type=lambda text: text.split(","),
                        default=["mlp_mnist", "lenet_mnist", "lstm_mnist", "gpt_char", "encoder", "resnet18_train"])
    parser.add_argument("--optimizers", type=lambda text: text.split(","), default=["sgd", "adam", "adamw"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--corpora", default=os.environ.get("WEFT_CORPORA", ""))
    parser.add_argument("--runner", default="bazel-bin/tools/graph_runner")
    parser.add_argument("--model")
    parser.add_argument("--path", help="where export writes the encoder")
    parser.add_argument("--optimizer")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--flags", default="", help="more flags for `graph_runner train`, of held-out")
    arguments = parser.parse_args()
    {"curves": curves, "times": times, "held-out": held_out, "pytorch": pytorch,
     "export": export}[arguments.what](arguments)


if __name__ == "__main__":
    main()
