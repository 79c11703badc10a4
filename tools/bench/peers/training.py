"""Training steps against PyTorch, eager and compiled: same model, weights, batches and optimizer."""
import csv
import json
import os
import subprocess
import tempfile

import numpy as np

import machine
import networks
import pairing
import rows
import sides

EAGER, COMPILED = "pytorch", "torch.compile"
STEPS = {"resnet18": 6}  # of a round; other models are quick
OPTIMIZER = "sgd"
# Of the loss before any update, and of the one after the first.
TOLERANCES = (1e-4, 1e-3)
SETTLING = 2  # first steps of a run, which are not timed
DATA_STEPS = 40  # batches of different data; then they come again


class OurTraining:
    """`graph_runner train` on the data of PyTorch's side: a run of its own each time."""

    def __init__(self, bench, model, steps, folder, optimizer=OPTIMIZER, batch=networks.BATCH):
        self.bench, self.model, self.optimizer, self.batch, self.folder = bench, model, optimizer, batch, folder
        name, inputs, labels = networks.data_of(model, bench.corpora, steps, batch)
        np.save(os.path.join(folder, "inputs.npy"), inputs)
        np.save(os.path.join(folder, "labels.npy"), labels)
        path = os.path.join(folder, "encoder.onnx")
        if model == "encoder" and not os.path.exists(path):
            subprocess.run(sides.python_side("pytorch_side.py", "--model", "encoder", "--export", path), check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.path = path if model == "encoder" else networks.path_of(model, bench.corpora)
        self.data = ["--data", name + "=" + os.path.join(folder, "inputs.npy"),
                     "--labels", os.path.join(folder, "labels.npy"), "--batch", str(batch)]

    def flags(self):
        rate = networks.RATES[self.model] if self.optimizer == "sgd" else 1e-3
        more = ["--weight-decay", "0.01"] if self.optimizer == "adamw" else []
        return [*self.data, "--optimizer", self.optimizer, "--lr", str(rate), *more]

    def run(self, steps, threads, *more):
        """{"losses", "seconds" (of each step), "memory" (bytes of each rank)}."""
        metrics = os.path.join(self.folder, "metrics.csv")
        done = subprocess.run([self.bench.programs.path("graph_runner"), "train", self.path, *self.flags(), "--no-shuffle",
                               "--steps", str(steps), "--metrics", metrics, "--output", "json", *more],
                              capture_output=True, text=True, env=machine.environment(self.bench.limit),
                              preexec_fn=machine.on_cores(threads))
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise RuntimeError("train: " + (lines[-1] if lines else "exit code %d" % done.returncode))
        with open(metrics) as file:
            steps_of_run = list(csv.DictReader(file))
        return {"losses": [float(step["loss"]) for step in steps_of_run],
                "seconds": [self.batch / float(step["samples_per_second"]) for step in steps_of_run],
                "memory": [rank["peak_bytes"] for rank in json.loads(done.stdout)["memory"]]}

    def flops(self):
        """Of a step, as `plan` counts them."""
        done = subprocess.run([self.bench.programs.path("graph_runner"), "plan", self.path, *self.flags(), "--parallel", "dp=1",
                               "--output", "json"], capture_output=True, text=True)
        return sum(rank["flops"] for rank in json.loads(done.stdout)["ranks"]) if done.returncode == 0 else None


def torch_command(bench, model, threads, *more):
    return sides.python_side("pytorch_side.py", "--model", model, "--corpora", bench.corpora, "--threads", threads, *more)


def median_step(result):
    return pairing.median(result["seconds"][SETTLING:])


def hold_losses(ours, theirs):
    """The larger of the gaps of the first two losses."""
    gaps = [pairing.relative_gap([a], [b]) for a, b in zip(ours, theirs)]
    for what, gap, tolerance in zip(("the first losses", "the losses after one step"), gaps, TOLERANCES):
        pairing.hold_equal(what, gap, tolerance)
    return max(gaps)


def timed(bench, about, ours, threads, more):
    steps = (4 if bench.quick else STEPS.get(about["case"], 30)) + SETTLING
    command = torch_command(bench, about["case"], threads, "--steps", DATA_STEPS, *more)
    with sides.Side(command, threads, bench.limit) as theirs:
        gap = hold_losses(ours.run(2, threads)["losses"], json.loads(theirs.ask(2))["losses"])
        theirs.ask(SETTLING)
        memory = []

        def mine():
            result = ours.run(steps, threads)
            memory.append(result["memory"][0])
            return median_step(result)

        both = pairing.take_turns([mine, lambda: median_step(json.loads(theirs.ask(steps)))], bench.rounds, bench.pause)
        theirs_memory = theirs.peak_bytes() - int(theirs.ask("base"))
        return rows.measured(about, *both, difference=gap, flops=ours.flops(), optimizer=OPTIMIZER, batch=ours.batch,
                             memory={"ours": max(memory), "theirs": theirs_memory})


def run(bench):
    bench.programs.path("graph_runner")
    bench.need_corpora()
    for model in bench.chosen(networks.MODELS):
        for threads in bench.threads:
            for peer, more in ((EAGER, []), (COMPILED, ["--compile"])):
                about = rows.row("training", model, peer, threads)

                def measure():
                    with tempfile.TemporaryDirectory() as folder:
                        return timed(bench, about, OurTraining(bench, model, DATA_STEPS, folder), threads, more)

                yield rows.guarded(about, measure)


# ---- results alone: no times

def run_curves(bench):
    """The largest gap of our losses over 50 steps from PyTorch's in float64, and that of PyTorch's in float32."""
    bench.programs.path("graph_runner")
    bench.need_corpora()
    for model in bench.chosen([*networks.MODELS, "encoder"]):
        steps = 4 if model == "resnet18" else 10 if bench.quick else 50
        for optimizer in ("sgd", "adam", "adamw"):
            about = rows.row("curves", "%s, %s" % (model, optimizer), EAGER, machine.cores())

            def measure():
                with tempfile.TemporaryDirectory() as folder:
                    ours = OurTraining(bench, model, steps, folder, optimizer).run(steps, machine.cores())["losses"]
                truth, single = (losses_in(bench, model, optimizer, steps, kind) for kind in (["--double"], []))
                return rows.measured(about, [pairing.relative_gap(ours, truth)], [pairing.relative_gap(single, truth)],
                                     unit="gap")

            yield rows.guarded(about, measure)


def losses_in(bench, model, optimizer, steps, kind):
    command = torch_command(bench, model, machine.cores(), "--optimizer", optimizer, "--steps", steps, *kind)
    with sides.Side(command, machine.cores(), bench.limit) as side:
        return json.loads(side.ask(steps))["losses"]


def run_held_out(bench):
    """The small GPT's loss on the last tenth of the text, after AdamW has seen batches of the rest."""
    bench.programs.path("graph_runner")
    bench.need_corpora()
    steps = 20 if bench.quick else 500
    about = rows.row("held_out", "gpt, adamw, %d steps" % steps, EAGER, machine.cores())

    def measure():
        command = torch_command(bench, "gpt", machine.cores(), "--optimizer", "adamw", "--steps", steps, "--held-out")
        with sides.Side(command, machine.cores(), bench.limit) as side:
            side.ask(steps)
            theirs = float(side.ask("held-out"))
        return rows.measured(about, [our_held_out(bench, steps)], [theirs], unit="loss")

    yield rows.guarded(about, measure)


def our_held_out(bench, steps):
    runner, model = bench.programs.path("graph_runner"), networks.path_of("gpt", bench.corpora)
    with tempfile.TemporaryDirectory() as folder:
        trained, data = os.path.join(folder, "trained.onnx"), []
        for name, (inputs, labels) in zip(("train", "test"), networks.split_text(bench.corpora, steps)):
            files = [os.path.join(folder, name + what) for what in (".inputs.npy", ".labels.npy")]
            np.save(files[0], inputs)
            np.save(files[1], labels)
            data.append(["--data", "idx=" + files[0], "--labels", files[1], "--batch", str(networks.BATCH)])
        subprocess.run([runner, "train", model, *data[0], "--steps", str(steps), "--no-shuffle", "--optimizer", "adamw",
                        "--lr", "0.001", "--weight-decay", "0.01", "-o", trained], check=True, capture_output=True)
        done = subprocess.run([runner, "eval", trained, *data[1], "--metric", "loss", "--output", "json"], check=True,
                              capture_output=True, text=True)
    return json.loads(done.stdout)["loss"]
