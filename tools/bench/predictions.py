#!/usr/bin/env python3
"""How wrong are predicted steps? Calibrates each model, predicts each plan with an empty ledger, then trains under it.

    tools/bench/predictions.py CORPORA [--models mlp_mnist,lenet_mnist] [--plans "1;dp=2;pp=2;tp=2"] [--steps 250] [--binary PATH]

CORPORA is the folder that WEFT_CORPORA names. A plan is `1` (one process) or what --parallel takes, on two processes. The
profile of a model on N workers is measured once, without running any of its plans. Prints a row per set-up: predicted
and measured milliseconds (the median of all steps but the first five) and their ratio.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

BATCH = 64


def data_of(model, corpora):
    if model == "gpt_char":
        text = os.path.join(corpora, "text-iris/tinyshakespeare.txt")
        return ["--data", "idx=" + text, "--labels", text, "--vocabulary", "characters", "--sequence-length", "64"]
    images = os.path.join(corpora, "mnist/train-images-idx3-ubyte")
    labels = os.path.join(corpora, "mnist/train-labels-idx1-ubyte")
    return ["--data", "x=" + images, "--labels", labels]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(" ".join(command) + "\n" + done.stderr)
    return done.stdout, done.stderr


def measure(binary, model, corpora, plan, steps, folder, profiles):
    workers = 1 if plan == "1" else 2
    path = os.path.join(corpora, "training-models", model + ".onnx")
    common = [path] + data_of(model, corpora) + ["--batch", str(BATCH), "--optimizer", "sgd", "--lr", "0.01", "--local", str(workers)]
    profile = os.path.join(folder, "%s-%d.yaml" % (model, workers))
    if profile not in profiles:
        run([binary, "calibrate"] + common + ["-o", profile])
        profiles.add(profile)
    placed = common + ([] if plan == "1" else ["--parallel", plan]) + ["--calibration", profile, "--ledger", ""]
    said = json.loads(run([binary, "plan"] + placed + ["--output", "json"])[0])
    metrics = os.path.join(folder, "metrics.jsonl")
    _, log = run([binary, "train"] + placed + ["--steps", str(steps), "--metrics", metrics])
    rates = [json.loads(line) for line in open(metrics)]
    measured = statistics.median(BATCH / row["samples_per_second"] for row in rates[5:])
    parts = [line for line in log.splitlines() if line.startswith("       computing")]
    return said["predicted_step_seconds"], measured, parts[0].strip() if parts else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora")
    parser.add_argument("--models", default="mlp_mnist,lenet_mnist,lstm_mnist,gpt_char")
    parser.add_argument("--plans", default="1;dp=2;pp=2;tp=2")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--binary", default="bazel-bin/tools/graph_runner")
    parser.add_argument("--parts", action="store_true", help="also what `train` says of computing and communication")
    arguments = parser.parse_args()
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        profiles = set()
        for model in arguments.models.split(","):
            for plan in arguments.plans.split(";"):
                try:
                    predicted, measured, parts = measure(arguments.binary, model, arguments.corpora, plan, arguments.steps, folder, profiles)
                except RuntimeError as error:
                    print("%-14s %-8s %s" % (model, plan, str(error).splitlines()[-1]), flush=True)
                    continue
                errors.append(abs(predicted / measured - 1))
                print("%-14s %-8s predicted %8.3f ms, measured %8.3f ms: %+6.1f %%" % (
                    model, plan, 1e3 * predicted, 1e3 * measured, 100 * (predicted / measured - 1)), flush=True)
                if arguments.parts:
                    print("               " + parts, flush=True)
    if errors:
        print("median error %.1f %%, largest %.1f %%" % (100 * statistics.median(errors), 100 * max(errors)))


if __name__ == "__main__":
    main()
