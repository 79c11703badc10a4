#!/usr/bin/env python3
"""How wrong are predicted steps? Prints two tables in markdown; on a quiet machine of two cores in about a quarter of an hour.

    tools/bench/predictions.py CORPORA [--steps 250] [--runs 10] [--binary PATH] [--only mlp_mnist:dp=2] [--no-rank]

CORPORA is the folder that WEFT_CORPORA names. Each model is calibrated once for one process and once for two, as `calibrate`
does it by itself: without a run of any plan. The first table has a row per set-up: the step that was predicted before the
set-up's first run, with an empty history, and the median of that run's steps; then the same again after `--runs` runs have
gone into the history; and whether the bytes that each rank sent are exactly those predicted. The second table has ten plans of
one model by their predicted step, the rank correlation (Spearman's) of predicted and measured steps, and what the plan that the
search finds takes beside them. All are predicted first, and then measured in turns, since the machine drifts: three runs of
each, and the median of their medians.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

SETUPS = [
    "mlp_mnist:1", "mlp_mnist:dp=2", "mlp_mnist:pp=2", "mlp_mnist:tp=2",
    "lenet_mnist:1", "lenet_mnist:dp=2", "lenet_mnist:pp=2",
    "lstm_mnist:1", "lstm_mnist:dp=2",
    "gpt_char:1", "gpt_char:dp=2", "gpt_char:pp=2",
]
RANKED_MODEL = "gpt_char"
RANKED_PLANS = [
    "dp=2,micro=2", "dp=2,micro=4", "dp=2,micro=8", "dp=2,micro=16", "tp=2,micro=1",
    "tp=2,micro=2", "pp=2,micro=2", "pp=2,micro=4", "pp=2,micro=8", "pp=2,micro=16",
]
LEARNING_STEPS = 60  # of the runs that only go into the history
TURNS = 3  # runs of each ranked plan


def flags_of(model, corpora):
    text = os.path.join(corpora, "text-iris/tinyshakespeare.txt")
    images = os.path.join(corpora, "mnist/train-images-idx3-ubyte")
    labels = os.path.join(corpora, "mnist/train-labels-idx1-ubyte")
    if model == "gpt_char":
        data = ["--data", "idx=" + text, "--labels", text, "--vocabulary", "characters", "--sequence-length", "64", "--batch", "16"]
    else:
        data = ["--data", "x=" + images, "--labels", labels, "--batch", "64"]
    return data + ["--optimizer", "sgd", "--lr", "0.01"]


class Bench:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        self.profiles = {}

    def run(self, *command):
        done = subprocess.run([self.arguments.binary, *command], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no error text")
        return done.stdout

    def placed(self, model, plan):
        """Model, data and processes; the flags of the plan."""
        workers = "1" if plan == "1" else "2"
        path = os.path.join(self.arguments.corpora, "training-models", model + ".onnx")
        common = [path, *flags_of(model, self.arguments.corpora), "--local", workers]
        return common, [] if plan == "1" else ["--parallel", plan]

    def profile(self, model, plan):
        common, _ = self.placed(model, plan)
        key = (model, common[-1])
        if key not in self.profiles:
            path = os.path.join(self.folder, "%s-%s.yaml" % key)
            self.run("calibrate", *common, "-o", path)
            self.profiles[key] = path
        return self.profiles[key]

    def predict(self, model, plan, history):
        common, parallel = self.placed(model, plan)
        said = self.run("plan", *common, *parallel, "--calibration", self.profile(model, plan), "--run-history", history, "--output", "json")
        return json.loads(said)["predicted_step_seconds"]

    def train(self, model, plan, history, steps):
        """The history's entry of the run, and whether each rank sent what was predicted."""
        common, parallel = self.placed(model, plan)
        report = json.loads(self.run("train", *common, *parallel, "--calibration", self.profile(model, plan), "--run-history", history,
                                     "--steps", str(steps), "--output", "json"))
        with open(history) as lines:
            entry = json.loads(lines.readlines()[-1])
        return entry, all(rank["bytes"] == rank["predicted_bytes"] for rank in report["sent"])

    def measure(self, model, plan, history):
        """Predicts, then runs; returns both steps in milliseconds, and whether all bytes were as predicted."""
        predicted = self.predict(model, plan, history)
        entry, exact = self.train(model, plan, history, self.arguments.steps)
        if abs(entry["predicted"]["step_seconds"] / predicted - 1) > 1e-9:
            raise RuntimeError("train predicts %r and plan %r" % (entry["predicted"]["step_seconds"], predicted))
        if self.arguments.parts:
            for name in ("compute_seconds", "communication_seconds"):
                print("    %s: predicted %.3f ms, measured %.3f" % (name, 1e3 * entry["predicted"][name], 1e3 * entry["measured"][name]),
                      file=sys.stderr)
        return 1e3 * predicted, 1e3 * entry["measured"]["step_seconds"], exact


def error(predicted, measured):
    return 100 * (predicted / measured - 1)


def summary(errors):
    absolute = [abs(one) for one in errors]
    return "median %.1f %%, largest %.1f %%" % (statistics.median(absolute), max(absolute))


def table_of_setups(bench, setups, runs):
    print("| model | plan | predicted ms | measured ms | error | after %d runs: predicted | measured | error | bytes as predicted |" % runs)
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    before, after, all_exact = [], [], True
    for setup in setups:
        model, plan = setup.split(":")
        history = os.path.join(bench.folder, setup.replace(":", "-") + ".jsonl")
        try:
            predicted, measured, exact = bench.measure(model, plan, history)
            before.append(error(predicted, measured))
            row = "| %s | %s | %.3f | %.3f | %+.1f %% |" % (model, plan, predicted, measured, before[-1])
            if runs > 0:
                for _ in range(runs - 1):
                    exact = bench.train(model, plan, history, LEARNING_STEPS)[1] and exact
                predicted, measured, still_exact = bench.measure(model, plan, history)
                exact = exact and still_exact
                after.append(error(predicted, measured))
                row += " %.3f | %.3f | %+.1f %% |" % (predicted, measured, after[-1])
            else:
                row += " | | |"
            print(row + (" yes |" if exact else " NO |"), flush=True)
            all_exact = all_exact and exact
        except RuntimeError as failure:
            print("| %s | %s | %s | | | | | | |" % (model, plan, failure), flush=True)
    if before:
        print("\n%d set-ups with an empty history: %s." % (len(before), summary(before)))
    if after:
        print("After %d runs: %s." % (runs, summary(after)))
    print("Bytes sent are %s those predicted.\n" % ("exactly" if all_exact else "NOT"), flush=True)


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    return [order.index(i) for i in range(len(values))]


def table_of_ranks(bench, model, plans):
    common, parallel = bench.placed(model, "auto")
    found = json.loads(bench.run("plan", *common, *parallel, "--calibration", bench.profile(model, "auto"), "--output", "json"))
    predicted, measured = {}, {}
    for plan in [*plans, "auto"]:
        try:
            predicted[plan] = bench.predict(model, plan, os.path.join(bench.folder, "none.jsonl")) * 1e3
            measured[plan] = []
        except RuntimeError as failure:
            print("%s %s: %s" % (model, plan, failure), flush=True)
    for turn in range(TURNS):
        for plan in predicted:
            history = os.path.join(bench.folder, "turn-%d-%s.jsonl" % (turn, plan))
            entry, _ = bench.train(model, plan, history, bench.arguments.steps)
            measured[plan].append(1e3 * entry["measured"]["step_seconds"])
    rows = sorted((predicted[plan], statistics.median(measured[plan]), plan) for plan in predicted if plan != "auto")
    print("| %s | predicted ms | measured ms | of the runs | error |\n|---|---|---|---|---|" % model)
    for said, took, plan in rows:
        print("| %s | %.3f | %.3f | %s | %+.1f %% |"
              % (plan, said, took, ", ".join("%.2f" % one for one in measured[plan]), error(said, took)))
    x, y = ranks([row[0] for row in rows]), ranks([row[1] for row in rows])
    n = len(rows)
    if n < 2:
        return
    correlation = 1 - 6 * sum((a - b) ** 2 for a, b in zip(x, y)) / (n * (n * n - 1))
    print("\nrank correlation of %d plans: %.3f" % (n, correlation))
    if "auto" not in measured:
        return
    best, took = min(row[1] for row in rows), statistics.median(measured["auto"])
    mesh = ",".join("%s=%d" % axis for axis in found["mesh"].items())
    print("found: %s,micro=%d,schedule=%s: %.3f ms measured, %.3f of the best of these"
          % (mesh, found["micro_batches"], found["schedule"], took, took / best))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora")
    parser.add_argument("--steps", type=int, default=250, help="of a run that is compared")
    parser.add_argument("--runs", type=int, default=10, help="that go into the history; 0 = no second prediction")
    parser.add_argument("--only", help="set-ups, as mlp_mnist:dp=2;gpt_char:1")
    parser.add_argument("--rank", default=RANKED_MODEL, metavar="MODEL", help="whose ten plans are ranked")
    parser.add_argument("--no-rank", action="store_true")
    parser.add_argument("--parts", action="store_true", help="also computing and communication of each run, on standard error")
    parser.add_argument("--binary", default="bazel-bin/tools/graph_runner")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, folder)
        table_of_setups(bench, arguments.only.split(";") if arguments.only else SETUPS, arguments.runs)
        if not arguments.no_rank:
            table_of_ranks(bench, arguments.rank, RANKED_PLANS)


if __name__ == "__main__":
    main()
