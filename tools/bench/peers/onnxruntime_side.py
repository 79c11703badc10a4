#!/usr/bin/env python3
"""onnxruntime's side of a comparison: answers the requests that model_timer.cc answers, in its words.

    onnxruntime_side.py [--outputs FOLDER] [--profile] MODEL.onnx THREADS NAME=FILE ...

Beyond them, "base" is answered by the peak memory in bytes from before the session. With --profile, "kernels" ends the
profile and is answered by the seconds in kernels of each run; runs are then a little slower.
"""
import argparse
import json
import os
import sys
import tempfile
import time

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime


def value_of(path):
    if path.endswith(".npy"):
        return np.load(path)
    tensor = onnx.TensorProto()
    with open(path, "rb") as file:
        tensor.ParseFromString(file.read())
    return onnx.numpy_helper.to_array(tensor)


def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


class Session:
    """A session with its inputs bound once, so that a run copies as little as the library can."""

    def __init__(self, arguments, folder):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = arguments.threads
        options.log_severity_level = 3
        if arguments.profile:
            options.enable_profiling = True
            options.profile_file_prefix = os.path.join(folder, "profile")
        begin = time.perf_counter()
        self.session = onnxruntime.InferenceSession(arguments.model, options, providers=["CPUExecutionProvider"])
        self.seconds = time.perf_counter() - begin
        self.feeds = dict((name, value_of(path)) for name, path in arguments.inputs)
        self.names = [output.name for output in self.session.get_outputs()]
        self.binding = self.session.io_binding()
        for name, value in self.feeds.items():
            self.binding.bind_cpu_input(name, np.ascontiguousarray(value))
        for name in self.names:
            self.binding.bind_output(name, "cpu")
        self.runs = 0

    def run(self):
        begin = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        self.runs += 1
        return time.perf_counter() - begin

    def kernels(self):
        """Seconds in kernels of each run but the first one."""
        with open(self.session.end_profiling()) as file:
            events = [event for event in json.load(file) if event["name"].endswith("_kernel_time")]
        per_run = max(1, round(len(events) / self.runs))  # as many as the optimized model has nodes
        return [sum(event["dur"] for event in events[i:i + per_run]) / 1e6 for i in range(per_run, len(events), per_run)]


def opened(arguments, folder):
    session = Session(arguments, folder)
    print("opened %.9f %.9f" % (session.seconds, session.run()), flush=True)
    return session


def write_outputs(session, folder):
    for name, value in zip(session.names, session.binding.copy_outputs_to_cpu()):
        np.save(os.path.join(folder, name.replace("/", "_") + ".npy"), value)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outputs")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("model")
    parser.add_argument("threads", type=int)
    parser.add_argument("inputs", nargs="*", type=lambda text: tuple(text.split("=", 1)))
    arguments = parser.parse_args()
    base = peak_bytes()
    with tempfile.TemporaryDirectory() as folder:
        session = opened(arguments, folder)
        if arguments.outputs:
            write_outputs(session, arguments.outputs)
        for request in map(str.strip, sys.stdin):
            if request == "open":
                session = None
                session = opened(arguments, folder)
            elif request == "base":
                print(base, flush=True)
            elif request == "kernels":
                print(*["%.9f" % seconds for seconds in session.kernels()], flush=True)
            else:
                print(*["%.9f 0" % session.run() for _ in range(int(request))], flush=True)


if __name__ == "__main__":
    main()
