"""The processes that take turns. Each has a line of text as request and as answer (see model_timer.cc)."""
import os
import subprocess
import sys

import machine

HERE = os.path.dirname(os.path.abspath(__file__))


class Missing(Exception):
    """Something that a group needs is not here; the text says what, and how to get it."""


class Side:
    """A process on the first `threads` cores. With `waits`, it is ready when it has printed a line."""

    def __init__(self, command, threads, limit, waits=True):
        self.name = os.path.basename(command[0] if not command[0] == sys.executable else command[1])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env=machine.environment(limit),
                                        preexec_fn=machine.on_cores(threads))
        if waits:
            self.line()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.stderr.close()
        self.process.wait()

    def line(self):
        line = self.process.stdout.readline()
        if line:
            return line
        errors = self.process.stderr.read().strip().splitlines()
        raise RuntimeError("%s ended: %s" % (self.name, errors[-1] if errors else "it says nothing"))

    def send(self, request):
        self.process.stdin.write("%s\n" % request)
        self.process.stdin.flush()

    def ask(self, request):
        self.send(request)
        return self.line()

    def peak_bytes(self):
        """The most memory that the process has had resident."""
        with open("/proc/%d/status" % self.process.pid) as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        raise RuntimeError("no VmHWM in the status of " + self.name)


def python_side(script, *arguments):
    return [sys.executable, os.path.join(HERE, script), *map(str, arguments)]


class Programs:
    """Weft's programs in a folder that is laid out as bazel-bin."""
    TARGETS = {
        "graph_runner": "tools/graph_runner",
        "model_timer": "tools/bench/model_timer",
        "machine_limits": "tools/bench/machine_limits",
        "compile_time": "tools/bench/compile_time",
        "checkpoints": "tools/bench/checkpoints",
        "all_reduce_benchmark": "distributed/all_reduce_benchmark",
        "transport_benchmark": "distributed/transport_benchmark",
    }

    def __init__(self, folder):
        self.folder = folder

    def path(self, name):
        target = self.TARGETS[name]
        path = os.path.join(self.folder, target)
        if not os.access(path, os.X_OK):
            raise Missing("no %s: bazel build //%s" % (path, ":".join(target.rsplit("/", 1))))
        return path
