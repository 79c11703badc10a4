#!/usr/bin/env python3
"""PyTorch's side of a comparison of training: makes steps on request.

    pytorch_side.py --model gpt --corpora DIR --threads N [--compile] [--double] [--optimizer adam] [--ranks 2 --rank 0 ...]

Says "opened" when the model is there. A number of steps is answered by a line of JSON with their losses and seconds; "base" by
the peak memory in bytes from before the model; "held-out", after --held-out, by the loss on the rest of the text;
"all-reduce ELEMENTS N", with --ranks, by the seconds of N sums of so many float32 over all ranks.
"""
import argparse
import json
import os
import sys
import time

import numpy as np
import onnx
import onnx.numpy_helper
import torch

import networks


def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def weights_of(path, dtype):
    """The file's initializers by name. Those that train ask for gradients."""
    weights = {}
    for tensor in onnx.load(path).graph.initializer:
        value = torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
        weights[tensor.name] = value.to(dtype) if value.is_floating_point() else value
    for name, value in weights.items():
        if value.is_floating_point() and not name.startswith("const.") and ".running_" not in name:
            value.requires_grad_(True)
    return weights


class Network(torch.nn.Module):
    """A forward pass on the weights of a file, as a module: DistributedDataParallel wants one."""

    def __init__(self, model, weights):
        super().__init__()
        tensors = {}
        for name, value in weights.items():
            plain = name.replace(".", "_")
            if value.requires_grad:
                tensors[name] = torch.nn.Parameter(value.detach())
                self.register_parameter(plain, tensors[name])
            else:
                tensors[name] = value
                self.register_buffer(plain, value)
        self.compute = networks.forward_of(model, tensors, torch)

    def forward(self, x):
        return self.compute(x)


def optimizer_of(name, model, parameters):
    if name == "sgd":
        return torch.optim.SGD(parameters, networks.RATES[model])
    if name == "adam":
        return torch.optim.Adam(parameters, 1e-3)
    return torch.optim.AdamW(parameters, 1e-3, weight_decay=0.01)


def cross_entropy(logits, labels, **more):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), **more)


class Trainer:
    def __init__(self, arguments):
        self.dtype = torch.float64 if arguments.double else torch.float32
        self.rest = None
        if arguments.held_out:
            (self.inputs, self.labels), self.rest = networks.split_text(arguments.corpora, arguments.steps)
        else:
            _, self.inputs, self.labels = networks.data_of(arguments.model, arguments.corpora, arguments.steps)
        if arguments.model == "encoder":
            module = networks.encoder(torch).to(self.dtype)
        else:
            module = Network(arguments.model, weights_of(networks.path_of(arguments.model, arguments.corpora), self.dtype))
        if arguments.ranks > 1:
            # Each rank has its part of a batch.
            self.inputs, self.labels = self.inputs[arguments.rank::arguments.ranks], self.labels[arguments.rank::arguments.ranks]
            module = torch.nn.parallel.DistributedDataParallel(module)
        self.optimizer = optimizer_of(arguments.optimizer, arguments.model, module.parameters())
        self.forward = torch.compile(module) if arguments.compile else module
        self.batch = arguments.batch
        self.next = 0

    def step(self):
        begin = self.next % (len(self.inputs) // self.batch) * self.batch
        self.next += 1
        x = torch.from_numpy(self.inputs[begin:begin + self.batch])
        y = torch.from_numpy(self.labels[begin:begin + self.batch])
        start = time.perf_counter()
        loss = cross_entropy(self.forward(x.to(self.dtype) if x.is_floating_point() else x), y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        value = loss.item()
        return value, time.perf_counter() - start

    def held_out(self):
        with torch.no_grad():
            x, y = (torch.from_numpy(part) for part in self.rest)
            total = sum(cross_entropy(self.forward(x[row:row + self.batch]), y[row:row + self.batch], reduction="sum").item()
                        for row in range(0, len(x), self.batch))
        return total / y.numel()


def all_reduce(elements, count):
    values = torch.ones(elements)
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        torch.distributed.all_reduce(values)
        seconds.append(time.perf_counter() - start)
        if values[0] != torch.distributed.get_world_size() or values[-1] != values[0]:
            raise RuntimeError("a sum is wrong")
        values.fill_(1)
    return seconds


def export_encoder(path):
    batch = torch.export.Dim("batch")
    torch.onnx.export(networks.encoder(torch).eval(), (torch.zeros(2, 28, 28),), path, input_names=["x"],
                      output_names=["logits"], dynamo=True, external_data=False, dynamic_shapes={"x": {0: batch}})


def answer(request, trainer, base):
    if request == "base":
        return base
    if request == "held-out":
        return trainer.held_out()
    if request.startswith("all-reduce"):
        return json.dumps(all_reduce(*map(int, request.split()[1:])))
    losses, seconds = zip(*[trainer.step() for _ in range(int(request))])
    return json.dumps({"losses": losses, "seconds": seconds})


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, choices=list(networks.RATES))
    parser.add_argument("--corpora")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8, help="batches of different data; then they come again")
    parser.add_argument("--batch", type=int, default=networks.BATCH)
    parser.add_argument("--optimizer", default="sgd", choices=["sgd", "adam", "adamw"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--meet", help="a file by which the ranks find each other")
    parser.add_argument("--export", metavar="FILE.onnx", help="write the encoder there, and stop")
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.export:
        return export_encoder(arguments.export)
    torch.set_num_threads(arguments.threads)
    base = peak_bytes()
    if arguments.ranks > 1:
        torch.distributed.init_process_group("gloo", init_method="file://" + os.path.abspath(arguments.meet),
                                             rank=arguments.rank, world_size=arguments.ranks)
    trainer = Trainer(arguments)
    print("opened", torch.__version__, np.__version__, flush=True)
    for request in map(str.strip, sys.stdin):
        print(answer(request, trainer, base), flush=True)
    if arguments.ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
