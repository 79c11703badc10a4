"""Inference against onnxruntime: nine exports with random weights, and the real models of the corpora."""
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import numpy as np

import exports
import pairing
import rows
import sides

TOLERANCE = 1e-3  # of the largest output: random networks of 100 layers round differently
PEER = "onnxruntime"
# Quantized models may differ by a step of their last rounding.
TOLERANCES = {"micro_kws_qdq": 4e-3}


@dataclass
class Case:
    name: str
    model: str  # path
    inputs: dict  # name: path


def saved(values, folder):
    paths = {}
    for name, value in values.items():
        paths[name] = os.path.join(folder, name.replace("/", "_") + ".npy")
        np.save(paths[name], value)
    return paths


def exported_case(name, folder):
    """A network of exports.py: made once, then kept in the folder."""
    path = os.path.join(folder, name + ".onnx")
    if not os.path.exists(path):
        done = subprocess.run([sys.executable, exports.__file__, name, path + ".part"], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError("exporting %s: %s" % (name, done.stderr.strip().splitlines()[-1]))
        os.rename(path + ".part", path)
    inputs = os.path.join(folder, name)
    os.makedirs(inputs, exist_ok=True)
    return Case(name, path, saved(exports.inputs_of(name), inputs))


def corpus_case(name, corpora):
    """A model of the corpora with its first set of inputs."""
    folder = os.path.join(corpora, "models", name)
    with open(os.path.join(corpora, "models", "manifest.json")) as file:
        names = [value["name"] for value in json.load(file)[name]["sets"][0]["inputs"]]
    inputs = {key: os.path.join(folder, "test_data_set_0", "input_%d.pb" % i) for i, key in enumerate(names)}
    return Case(name, os.path.join(folder, "model.onnx"), inputs)


def corpus_names(corpora):
    path = os.path.join(corpora, "models")
    return sorted(name for name in os.listdir(path) if os.path.isdir(os.path.join(path, name)) and name.islower())


def commands(bench, case, threads, folders=None, profile=False):
    """Our command and onnxruntime's. With folders for outputs, both write theirs."""
    rest = [case.model, str(threads)] + ["%s=%s" % item for item in case.inputs.items()]
    ours = [bench.programs.path("model_timer")] + (["--outputs=" + folders[0]] if folders else [])
    theirs = (["--outputs=" + folders[1]] if folders else []) + (["--profile"] if profile else [])
    return ours + rest, sides.python_side("onnxruntime_side.py", *theirs, *rest)


def output_gap(folders):
    """The largest difference of two folders of outputs, relative to the largest number of each."""
    names = [sorted(os.listdir(folder)) for folder in folders]
    if names[0] != names[1] or not names[0]:
        raise pairing.WrongResult("outputs %s here, %s there" % tuple(names))
    gap = 0.0
    for name in names[0]:
        ours, theirs = (np.load(os.path.join(folder, name)).astype(np.float64) for folder in folders)
        if ours.shape != theirs.shape or not np.isfinite(ours).all():
            raise pairing.WrongResult("output %s is %s here, %s there" % (name, ours.shape, theirs.shape))
        if ours.size:
            gap = max(gap, float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-6)))
    return gap


def seconds(side, runs):
    """The median time of so many runs in a row."""
    return pairing.median([float(text) for text in side.ask(runs).split()[0::2]])


def compared(bench, case, threads, measure, profile=False):
    """measure(our side, theirs, gap) on two open sides whose outputs are the same."""
    with tempfile.TemporaryDirectory() as folder:
        folders = [os.path.join(folder, name) for name in ("ours", "theirs")]
        for path in folders:
            os.mkdir(path)
        our_command, their_command = commands(bench, case, threads, folders, profile)
        with sides.Side(our_command, threads, bench.limit) as ours, \
                sides.Side(their_command, threads, bench.limit) as theirs:
            seconds(ours, 1), seconds(theirs, 1)  # the outputs are written before these are answered
            gap = output_gap(folders)
            pairing.hold_equal("outputs", gap, TOLERANCES.get(case.name, TOLERANCE))
            return measure(ours, theirs, gap)


def flops(bench, case):
    """Of a run with a batch of one, as `inspect` counts them; none where a shape depends on data."""
    done = subprocess.run([bench.programs.path("graph_runner"), "inspect", case.model, "--output", "json"],
                          capture_output=True, text=True)
    said = json.loads(done.stdout) if done.returncode == 0 else {}
    return None if said.get("flops_unknown") else said.get("flops_per_sample")


def timed(bench, about, case, threads):
    def measure(ours, theirs, gap):
        once = max(seconds(ours, 2), seconds(theirs, 2))
        runs = pairing.runs_of_a_round(once, bench.seconds)
        mine, other = pairing.take_turns([lambda: seconds(ours, runs), lambda: seconds(theirs, runs)], bench.rounds,
                                         bench.pause)
        memory = {"ours": ours.peak_bytes(), "theirs": theirs.peak_bytes() - int(theirs.ask("base"))}
        return rows.measured(about, mine, other, difference=gap, memory=memory, flops=flops(bench, case))

    return compared(bench, case, threads, measure)


def cases(bench):
    """Functions that make a case, by its name: exporting may fail, and takes its time."""
    result = {name: lambda name=name: exported_case(name, bench.kept("exports")) for name in exports.NETWORKS}
    if bench.corpora:
        for name in corpus_names(bench.corpora):
            result[name] = lambda name=name: corpus_case(name, bench.corpora)
    return result


def run(bench):
    bench.programs.path("model_timer")
    for name, make in bench.chosen(cases(bench)).items():
        for threads in bench.threads:
            about = rows.row("inference", name, PEER, threads)
            yield rows.guarded(about, lambda: timed(bench, about, make(), threads))
