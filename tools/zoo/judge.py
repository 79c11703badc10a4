#!/usr/bin/env python3
"""Trains the files that export.py wrote with graph_runner, and judges what comes out by the truth beside them."""
import argparse
import csv
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import onnxruntime

import matching

EXAMPLES = """examples:
  judge.py --files files --runner bazel-bin/tools/graph_runner
  judge.py --files files --only 'bert*,*.dynamo.train' --keep out
  judge.py --files files --checks parameters,curve --json table.json --text table.txt
"""
PLANS = {"dp2": "dp=2", "pp2": "pp=2", "auto": "auto", "tp2": "tp=2"}
CHECKS = ("parameters", "curve", "numbers", "agree", *PLANS, "memory", "run", "result")
OK, FAILED, REFUSED, NONE = "ok", "FAILED", "refused", "-"
CURVE_TOLERANCE = 1e-4
RESULT_TOLERANCE = 1e-3
AFTER = ("float64", "float32", "restored", "with_missing")  # axis 0 of NAME.after.npy, as in export.py
PLAN_TOLERANCE = 1e-5
TIMEOUT_S = 180
ATTEMPTS = 2
TOO_SLOW = ("before it answered", "did not answer in time")  # of workers that start beside other work
REFUSALS = {2, 3, 4}  # exit codes: flags, the model, the plan


@dataclass
class Verdict:
    """Of one file: for each check one of OK, FAILED, REFUSED, NONE, and the reasons of what is not OK."""
    file: str
    results: dict[str, str] = field(default_factory=lambda: dict.fromkeys(CHECKS, NONE))
    reasons: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    memory: list[dict] = field(default_factory=list)  # of each process of each run, in bytes

    def say(self, check: str, result: str, reason: str = "") -> None:
        self.results[check] = result
        if reason and result != OK:
            self.reasons[check] = reason

    def hold(self, check: str, problem: str) -> None:
        self.say(check, FAILED if problem else OK, problem)


@dataclass
class Trained:
    """What one `train` did."""
    code: int
    error: str
    losses: list[float] = field(default_factory=list)
    sent: float = 0.0  # bytes, all ranks and steps
    memory: list[dict] = field(default_factory=list)


def last_error(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("error")]
    return (lines or text.strip().splitlines() or [""])[-1][:400]


def gap(ours: list[float], truth: list[float]) -> float:
    """The largest difference relative to the loss; infinite where a loss is missing or not a number."""
    if len(ours) != len(truth) or not np.isfinite(ours).all():
        return float("inf")
    return max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(ours, truth))


def distance(ours: np.ndarray, truth: np.ndarray) -> float:
    """The largest difference relative to the largest number; infinite where shapes differ or a number has no value."""
    if ours.shape != truth.shape or not np.isfinite(ours).all():
        return float("inf")
    return float(np.abs(ours - truth).max() / max(np.abs(truth).max(), 1e-6))


class Judge:
    """Of one file; its own folder for what the runs write."""

    def __init__(self, arguments: argparse.Namespace, name: str, folder: str):
        self.arguments = arguments
        self.path = os.path.join(arguments.files, name)
        with open(self.path[:-5] + ".json") as file:
            self.truth = json.load(file)
        self.folder = folder
        self.verdict = Verdict(name[:-5])
        self.wanted = set(arguments.checks.split(","))

    def file(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def data(self, name: str) -> str:
        return os.path.join(self.arguments.files, name)

    def call(self, *command: str) -> subprocess.CompletedProcess:
        try:
            return subprocess.run([self.arguments.runner, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, errors="replace", timeout=TIMEOUT_S, cwd=self.folder)
        except subprocess.TimeoutExpired as expired:
            return subprocess.CompletedProcess(expired.cmd, 124, "", f"error: no end within {TIMEOUT_S} s")

    def train(self, name: str, *flags: str, order: tuple[str, ...] = ("--no-shuffle",)) -> Trained:
        truth, metrics = self.truth, self.file(name + ".csv")
        data = ",".join(f"{key}={self.data(file)}" for key, file in truth["data"].items())
        done = self.call("train", self.path, "--data", data, "--labels", self.data(truth["labels"]),
                         "--batch", str(truth["batch"]), "--steps", str(truth["steps"]), *order, "--optimizer",
                         "sgd", "--metrics", metrics, "-o", self.file(name + ".onnx"), "--output", "json",
                         *truth["flags"], *flags)
        result = Trained(done.returncode, last_error(done.stderr))
        if done.returncode == 0:
            with open(metrics) as file:
                rows = list(csv.DictReader(file))
            result.losses = [float(row["loss"]) for row in rows if row["loss"]]
            result.sent = sum(float(row["bytes_sent"]) for row in rows)
            result.memory = json.loads(done.stdout)["memory"]
        return result

    def judge(self) -> Verdict:
        if "parameters" in self.wanted:
            self.judge_parameters()
        if self.wanted <= {"parameters"}:
            return self.verdict
        single = self.train("one")
        if "agree" in self.wanted:
            self.judge_agreement(single)
        self.judge_curve(single)
        runs = [single]
        if single.code == 0:
            if "numbers" in self.wanted:
                self.judge_numbers()
            runs += [self.judge_plan(check, plan, single) for check, plan in PLANS.items() if check in self.wanted]
            if self.wanted & {"run", "result"}:
                self.judge_export()
        self.judge_memory(dict(zip(["one", *(check for check in PLANS if check in self.wanted)], runs)))
        return self.verdict

    # ---- what trains

    def parameter_check(self) -> "ParameterCheck | str":
        """Or why there is none."""
        done = self.call("inspect", self.path, "--output", "json")
        if done.returncode != 0:
            return last_error(done.stderr)
        said = json.loads(done.stdout)
        rows = [row for row in said["parameters"] if row["trains"]]
        untied = {row["name"]: row["from"] for row in said["ties"]["untied"]}
        return ParameterCheck(self.truth, rows, untied)

    def judge_parameters(self) -> None:
        check = self.parameter_check()
        self.verdict.hold("parameters", check if isinstance(check, str) else "; ".join(check.problems()))

    def judge_agreement(self, single: Trained) -> None:
        done = self.call("check", self.path, "--trainable", *self.truth["flags"])
        disagree = (done.returncode == 0) != (single.code == 0) and single.code not in (2, 5, 6)
        text = f"check --trainable: {done.returncode}, train: {single.code}: {single.error}"
        self.verdict.hold("agree", text if disagree else "")

    # ---- the curve

    def judge_curve(self, single: Trained) -> None:
        if single.code != 0:
            self.verdict.say("curve", FAILED, f"exit code {single.code}: {single.error}")
            return
        exact, rounded = self.truth["curve"]["float64"], self.truth["curve"]["float32"]
        found = min(gap(single.losses, exact), gap(single.losses, self.truth["curve"]["with_missing"]),
                    gap(single.losses, self.truth["curve"]["restored"]))
        allowed = max(CURVE_TOLERANCE, 10 * gap(rounded, exact))
        self.verdict.numbers["curve"] = found
        text = f"{found:.1e} from the module's: {single.losses} instead of {exact}"
        derived = self.truth["expected"]["derived"]
        # No training of the file can be that of the module, but it begins as the module does.
        begins = gap(single.losses[:1], exact[:1]) <= CURVE_TOLERANCE and len(single.losses) == len(exact)
        if found > allowed and derived and begins and np.isfinite(found):
            self.verdict.say("curve", NONE, f"the exporter computed {list(derived)[:3]} from parameters: {text}")
            return
        self.verdict.hold("curve", text if found > allowed else "")

    def judge_numbers(self) -> None:
        """No number of the exported file is without value that was not so before."""
        before = set(self.truth["expected"]["not_finite"])
        broken = []
        for name, values in matching.float_tensors(self.file("one.onnx")).items():
            if np.isnan(values).any() or not (name in before or np.isfinite(values).all()):
                broken.append(name)
        self.verdict.hold("numbers", f"not finite: {broken[:5]}" if broken else "")

    def judge_plan(self, check: str, plan: str, single: Trained) -> Trained:
        if check == "tp2" and not self.truth["transformer"]:
            return Trained(0, "")
        for _ in range(ATTEMPTS):
            run = self.train(check, "--local", "2", "--parallel", plan)
            if not any(text in run.error for text in TOO_SLOW):
                break
        if any(text in run.error for text in TOO_SLOW):
            self.verdict.say(check, NONE, f"the machine is too busy: {run.error}")
        elif run.code in REFUSALS and run.error:
            self.verdict.say(check, REFUSED, run.error)
        elif run.code != 0:
            self.verdict.say(check, FAILED, f"exit code {run.code}: {run.error}")
        else:
            found = gap(run.losses, single.losses)
            self.verdict.numbers[check] = found
            problem = f"{found:.1e} from one process: {run.losses}, {single.losses}"
            if found <= PLAN_TOLERANCE or self.is_as_the_module(run.losses) or self.is_equal_in_other_order(plan):
                problem = ""
            if check == "tp2" and run.sent == 0:
                problem = "nothing is split: 0 bytes sent"
            self.verdict.hold(check, problem)
        return run

    def is_equal_in_other_order(self, plan: str) -> bool:
        """Where rounding decided on which side of its kink one ReLU was: other samples bring no other to it."""
        single, run = (self.train("again", *flags, order=("--seed", "7"))
                       for flags in ((), ("--local", "2", "--parallel", plan)))
        return run.code == 0 and gap(run.losses, single.losses) <= PLAN_TOLERANCE

    def is_as_the_module(self, losses: list[float]) -> bool:
        """Where one process itself left the module's curve, since one ReLU more or less was passed: at each step the
        plan is as near to the curve in float64 as the module is in float32 so far, within a factor of ten."""
        exact, rounded = self.truth["curve"]["float64"], self.truth["curve"]["float32"]
        allowed = PLAN_TOLERANCE
        for step in range(len(exact)):
            allowed = max(allowed, 10 * gap(rounded[step:step + 1], exact[step:step + 1]))
            if not gap(losses[step:step + 1], exact[step:step + 1]) <= allowed:
                return False
        return len(losses) == len(exact)

    def judge_memory(self, runs: dict[str, Trained]) -> None:
        self.verdict.memory = [{"run": name, **row} for name, run in runs.items() for row in run.memory]
        parts = [row["peak_bytes"] / row["predicted_bytes"] for row in self.verdict.memory]
        if parts:
            self.verdict.numbers["memory"] = max(parts)
            self.verdict.hold("memory", f"peak {max(parts):.1%} of the memory requirement" if max(parts) > 1 else "")

    # ---- the exported file

    def feeds(self) -> dict[str, np.ndarray]:
        return {key: np.load(self.data(file))[:self.truth["batch"]] for key, file in self.truth["data"].items()}

    def session(self, path: str) -> onnxruntime.InferenceSession:
        """Without an optimizer where the exporter had none: that of onnxruntime 1.32 crashes on the Loop of dlrm.dynamo.raw."""
        options = onnxruntime.SessionOptions()
        if self.truth["form"].endswith(".raw"):
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def judge_export(self) -> None:
        """onnxruntime and `run` give the same for it, and what the module gives after the same steps."""
        try:
            session = self.session(self.file("one.onnx"))
            theirs = session.run(None, self.feeds())[0]
        except Exception as error:  # onnxruntime's own kinds; whether the original runs there decides
            self.refused_by_onnxruntime(str(error).splitlines()[0][:200])
            return
        scale = max(np.abs(theirs).max(), 1e-6)
        ours = self.run_exported(session.get_outputs()[0].name)
        if isinstance(ours, str):
            self.verdict.say("run", FAILED, ours)
        else:
            found = np.abs(ours - theirs).max() / scale
            self.verdict.numbers["run"] = float(found)
            self.verdict.hold("run", f"{found:.1e} from onnxruntime" if not found <= 1e-4 else "")
        self.judge_result(self.in_inference_mode() if self.is_exported_for_training() else theirs)

    def is_exported_for_training(self) -> bool:
        """Its normalizations take the statistics of the batch. With --train-mode they take their own in the result."""
        return self.truth["training"] and self.truth["form"].endswith(".train")

    def in_inference_mode(self) -> np.ndarray:
        done = self.train("inference", "--export-mode", "inference")
        if done.code != 0:
            raise RuntimeError(done.error)
        session = self.session(self.file("inference.onnx"))
        return session.run(None, self.feeds())[0]

    def refused_by_onnxruntime(self, reason: str) -> None:
        try:
            session = self.session(self.path)
            session.run(None, self.feeds())
            self.verdict.say("run", FAILED, f"onnxruntime: {reason}")
        except Exception:
            self.verdict.say("run", NONE, f"onnxruntime refuses the original, too: {reason}")

    def run_exported(self, output: str) -> np.ndarray | str:
        command = ["run", self.file("one.onnx"), "--output-dir", self.folder, "--output-name", output, "--threads", "1"]
        for key, values in self.feeds().items():
            np.save(self.file("feed." + key), values)
            command += ["--input", f"{key}={self.file('feed.' + key)}.npy"]
        done = self.call(*command)
        return np.load(self.file(output + ".npy")) if done.returncode == 0 else last_error(done.stderr)

    def judge_result(self, theirs: np.ndarray) -> None:
        """Of the module after it has trained what the file trains, no more and no less."""
        check = self.parameter_check()
        training = None if isinstance(check, str) else check.training()
        if training is None:
            self.verdict.say("result", FAILED, check if isinstance(check, str) else
                             f"of what the file lacks, {check.restored()} train: no training of the truth")
            return
        after = dict(zip(AFTER, np.load(self.data(self.truth["after"]))))
        found = distance(theirs, after[training])
        self.verdict.numbers["result"] = found
        text = f"outputs of the trained file are {found:.1e} from the trained module's ({training})"
        if not found <= RESULT_TOLERANCE and np.isfinite(found):
            excuse = self.excuse_of_result(distance(after["float32"], after["float64"]))
            if excuse:
                self.verdict.say("result", NONE, f"{excuse}: {text}")
                return
        self.verdict.hold("result", "" if found <= RESULT_TOLERANCE else text)

    def excuse_of_result(self, rounding: float) -> str:
        """Why nothing can be said: the file is not the module, or the module's own rounding is as much."""
        derived = self.truth["expected"]["derived"]
        if derived:
            return f"the exporter computed {list(derived)[:3]} from parameters"
        if rounding > RESULT_TOLERANCE:
            return f"the module in float32 is {rounding:.1e} from itself in float64"
        return ""


class ParameterCheck:
    """What trains, row by row of `inspect`, against what the module trains."""

    def __init__(self, truth: dict, rows: list[dict], untied: dict[str, str]):
        self.expected = truth["expected"]
        self.folded = truth["folded"]  # normalizations, whose shift may come back as the layer's bias
        self.folded_into = truth["folded_into"]  # by name: the layer that has it now
        self.rows = {row["name"]: row for row in rows}
        # A tensor that Weft made of a shared one says which it was; one that the file lacked is itself.
        missing = set(self.expected["missing"])
        self.sources = {name: name if name in missing else untied.get(name, name) for name in self.rows}

    def restored(self) -> list[str]:
        """What trains although no tensor of the file holds it. A folded normalization's shift is its layer's bias."""
        shifts = {layer + ".bias" for norm, layer in self.folded_into.items() if norm + ".bias" in self.rows}
        return [name for name in self.expected["missing"] if name in self.rows or name in shifts]

    def training(self) -> str | None:
        """Which of the truth's trainings trains what the file trains; None: none does."""
        wanted = {"float64": [], "restored": self.expected["left_out"], "with_missing": self.expected["missing"]}
        return next((name for name, names in wanted.items() if set(names) == set(self.restored())), None)

    def problems(self) -> list[str]:
        return self.constants() + self.left_out() + self.merged() + self.copied()

    def constants(self) -> list[str]:
        # A parameter that an exporter left out may come back under its name.
        known = {*self.expected["initializers"], *self.expected["missing"], *self.expected["derived"]}
        known.update(name + ".bias" for name in self.folded)
        names = [name for name, source in self.sources.items() if source not in known]
        return [f"{len(names)} constants train: {names[:8]}"] if names else []

    def trained_of(self, initializer: str) -> list[str]:
        return [name for name, source in self.sources.items() if source == initializer]

    def left_out(self) -> list[str]:
        names = [p for i, names in self.expected["initializers"].items() if not self.trained_of(i) for p in names]
        trained = {p for s in self.sources.values() for p in self.expected["initializers"].get(s, [])}
        names = [p for p in dict.fromkeys(names) if p not in trained]
        names += [p for p in self.expected["left_out"] if p not in self.rows]
        return [f"{len(names)} parameters do not train: {names[:8]}"] if names else []

    def merged(self) -> list[str]:
        found = []
        for initializer, names in self.expected["initializers"].items():
            if initializer in self.expected["joined"] or not self.trained_of(initializer):
                continue
            if len(self.trained_of(initializer)) != len(names):
                found.append(f"{initializer} trains as {len(self.trained_of(initializer))} for {len(names)}")
        return [f"{len(found)} merged: {'; '.join(found[:5])}"] if found else []

    def copied(self) -> list[str]:
        """A parameter in several tensors must stay one: their numbers count once."""
        found = {}
        for initializer, names in self.expected["initializers"].items():
            for name in names:
                found.setdefault(name, []).extend(
                    row for row in self.trained_of(initializer) if not self.rows[row].get("tied_to"))
        elements = {name: sum(self.rows[row]["elements"] for row in rows) for name, rows in found.items()}
        single = {n: rows for n, rows in found.items() if len(rows) > 1 and
                  all(len(self.expected["initializers"][self.sources[row]]) == 1 for row in rows)}
        apart = [f"{n} as {rows}" for n, rows in single.items() if elements[n] > self.size_of(n)]
        return [f"{len(apart)} copies train apart: {'; '.join(apart[:3])}"] if apart else []

    def size_of(self, parameter: str) -> int:
        return self.expected["sizes"][parameter]


# ---- the table

def table(verdicts: list[Verdict]) -> str:
    width = max((len(v.file) for v in verdicts), default=4)
    lines = [f"{'file':{width}} " + " ".join(f"{c:>10}" for c in CHECKS) + f" {'memory':>7}"]
    for v in verdicts:
        memory = f"{v.numbers['memory']:7.0%}" if "memory" in v.numbers else ""
        lines.append(f"{v.file:{width}} " + " ".join(f"{v.results[c]:>10}" for c in CHECKS) + " " + memory)
    lines += ["", f"{len(verdicts)} files"]
    for check, counts in summary(verdicts).items():
        lines.append(f"{check:10} " + ", ".join(f"{result} {count}" for result, count in counts.items() if count))
    lines.append("")
    lines += [f"{v.file} {check}: {reason}" for v in verdicts for check, reason in v.reasons.items()]
    return "\n".join(lines) + "\n"


def summary(verdicts: list[Verdict]) -> dict[str, dict[str, int]]:
    return {check: {result: sum(v.results[check] == result for v in verdicts)
                    for result in (OK, REFUSED, FAILED, NONE)} for check in CHECKS}


def judge_file(arguments: argparse.Namespace, name: str) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        if arguments.keep:
            folder = os.path.join(os.path.abspath(arguments.keep), name[:-5])
            os.makedirs(folder, exist_ok=True)
        try:
            verdict = Judge(arguments, name, folder).judge()
        except Exception as error:  # one file must not end the others
            verdict = Verdict(name[:-5])
            verdict.say("curve", FAILED, f"the judge failed: {type(error).__name__}: {error}")
    bad = ", ".join(f"{check} {result}" for check, result in verdict.results.items() if result not in (OK, NONE))
    print(f"{name[:-5]}: {bad}", flush=True)
    return verdict


def files_of(arguments: argparse.Namespace) -> list[str]:
    patterns = arguments.only.split(",")
    names = sorted(name for name in os.listdir(arguments.files) if name.endswith(".onnx"))
    return [name for name in names if any(fnmatch.fnmatch(name[:-5], pattern) for pattern in patterns)
            and has_truth(os.path.join(arguments.files, name))]


def has_truth(path: str) -> bool:
    if not os.path.exists(path[:-5] + ".json"):
        return False
    with open(path[:-5] + ".json") as file:
        return "expected" in json.load(file)


def judged_before(arguments: argparse.Namespace) -> dict[str, Verdict]:
    """With --resume: what an earlier run with the same program and checks left in its --json, by file."""
    if not arguments.resume or not os.path.exists(arguments.json):
        return {}
    with open(arguments.json) as file:
        return {row["file"]: Verdict(**row) for row in json.load(file)["files"]}


def write(arguments: argparse.Namespace, verdicts: list[Verdict]) -> None:
    """After each file, so that a run that is stopped leaves what it found."""
    if arguments.text:
        with open(arguments.text, "w") as file:
            file.write(table(verdicts))
    if arguments.json:
        with open(arguments.json, "w") as file:
            rows = [vars(verdict) for verdict in verdicts]
            json.dump({"summary": summary(verdicts), "files": rows}, file, indent=1, default=float)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", default="files", help="folder that export.py wrote (default: files)")
    parser.add_argument("--runner", default="bazel-bin/tools/graph_runner", help="the program to judge")
    parser.add_argument("--only", default="*", help="files or patterns, joined by commas")
    parser.add_argument("--checks", default=",".join(CHECKS), help=f"of {','.join(CHECKS)} (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="files at a time (default: 1)")
    parser.add_argument("--keep", default="", help="folder for what the runs write (default: thrown away)")
    parser.add_argument("--text", default="", help="write the table to this file, too")
    parser.add_argument("--json", default="", help="write results, reasons and numbers to this file")
    parser.add_argument("--resume", action="store_true", help="leave out files that --json has already")
    arguments = parser.parse_args()
    arguments.runner, arguments.files = os.path.abspath(arguments.runner), os.path.abspath(arguments.files)
    if arguments.resume and not arguments.json:
        parser.error("--resume goes on from --json, which is not given")
    verdicts: list[Verdict] = []
    before = judged_before(arguments)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for verdict in pool.map(lambda name: before.get(name[:-5]) or judge_file(arguments, name), files_of(arguments)):
            verdicts.append(verdict)
            write(arguments, verdicts)
    print(table(verdicts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
