"""Two worker processes against PyTorch's DDP with Gloo: steps of twice the batch, and all-reduces alone.

Each worker has one thread. The factor of a model is the time of a step of two workers by that of a step of one with half of the
batch: 1 is perfect.
"""
import contextlib
import json
import os
import tempfile

import networks
import pairing
import rows
import sides
import training

PEER = "ddp"
WORKERS = 2
MODELS = ("mlp", "cnn", "gpt", "resnet18")
ELEMENTS = (1, 1 << 18, 1 << 24)  # 4 bytes, 1 MiB, 64 MiB
TRANSPORT = "Grpc"
TIMES = {1: 200, 1 << 18: 40}  # sums of a round


class Ranks:
    """PyTorch's ranks, which have to be asked at once."""

    def __init__(self, bench, model, folder, stack):
        meet = os.path.join(folder, "meet")
        commands = [training.torch_command(bench, model, 1, "--ranks", WORKERS, "--rank", rank, "--meet", meet, "--steps",
                                           training.DATA_STEPS * WORKERS) for rank in range(WORKERS)]
        # Neither is ready before the other has come.
        self.ranks = [stack.enter_context(sides.Side(command, WORKERS, bench.limit, waits=False)) for command in commands]
        for rank in self.ranks:
            rank.line()

    def ask(self, request):
        for rank in self.ranks:
            rank.send(request)
        return [json.loads(rank.line()) for rank in self.ranks]

    def losses(self, steps):
        """Of the whole batch: each rank has an equal part."""
        return [sum(parts) / WORKERS for parts in zip(*(answer["losses"] for answer in self.ask(steps)))]

    def seconds(self, steps):
        return training.median_step(self.ask(steps)[0])


def settled(side, steps):
    return training.median_step(json.loads(side.ask(steps)))


def timed_steps(bench, model, folder, stack):
    """A row for the step of two workers, and one for the factor."""
    half, batch = networks.BATCH, WORKERS * networks.BATCH
    steps = (4 if bench.quick else training.STEPS.get(model, 30)) + training.SETTLING
    folders = [os.path.join(folder, name) for name in ("one", "two")]
    for path in folders:
        os.mkdir(path)
    one = training.OurTraining(bench, model, training.DATA_STEPS, folders[0])
    two = training.OurTraining(bench, model, training.DATA_STEPS, folders[1], batch=batch)
    both = ["--local", str(WORKERS), "--parallel", "dp=%d" % WORKERS]
    their_one = stack.enter_context(sides.Side(training.torch_command(bench, model, 1), 1, bench.limit))
    their_two = Ranks(bench, model, folder, stack)
    gap = training.hold_losses(two.run(2, WORKERS, *both)["losses"], their_two.losses(2))
    their_one.ask(training.SETTLING)
    ours_two, theirs_two, ours_one, theirs_one = pairing.take_turns(
        [lambda: training.median_step(two.run(steps, WORKERS, *both)), lambda: their_two.seconds(steps),
         lambda: training.median_step(one.run(steps, 1)), lambda: settled(their_one, steps)], bench.rounds, bench.pause)
    yield rows.measured(rows.row("scaling", model + ", batches of %d" % batch, PEER, 1), ours_two, theirs_two,
                        difference=gap)
    yield rows.measured(rows.row("scaling", model + ", two workers / one with %d" % half, PEER, 1),
                        pairing.ratios_of_pairs(ours_two, ours_one), pairing.ratios_of_pairs(theirs_two, theirs_one),
                        unit="times")


def timed_sums(bench, about, elements):
    count = 3 if bench.quick else TIMES.get(elements, 5)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ours = stack.enter_context(sides.Side([bench.programs.path("all_reduce_benchmark"), TRANSPORT], WORKERS, bench.limit))
        theirs = Ranks(bench, "mlp", folder, stack)

        def mine():
            return pairing.median([float(text) for text in ours.ask("%d %d" % (elements, count)).split()])

        def other():
            return pairing.median(theirs.ask("all-reduce %d %d" % (elements, count))[0])

        return rows.measured(about, *pairing.take_turns([mine, other], bench.rounds, bench.pause), transport=TRANSPORT)


def run(bench):
    bench.programs.path("graph_runner")
    bench.need_corpora()
    if max(bench.threads) < WORKERS:
        raise sides.Missing("two workers want two cores")
    for model in bench.chosen(MODELS):
        about = rows.row("scaling", model, PEER, 1)

        def measure():
            with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
                return list(timed_steps(bench, model, folder, stack))

        found = rows.guarded(about, measure)
        yield from found if isinstance(found, list) else [found]
    bench.programs.path("all_reduce_benchmark")
    for elements in ELEMENTS:
        about = rows.row("scaling", "all-reduce of %s bytes" % "{:,}".format(4 * elements), "gloo", 1)
        if bench.chosen([about["case"]]):
            yield rows.guarded(about, lambda: timed_sums(bench, about, elements))
