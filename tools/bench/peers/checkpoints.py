"""Checkpoints against torch.save and torch.load: saved until they are safe on the disk, and loaded again."""
import os
import tempfile

import pairing
import rows
import sides

PEER = "pytorch"
WAYS = {"saved": ("save",), "loaded from the cache": ("load",), "loaded from the disk": ("cold", "load")}


def seconds(side, requests):
    """Of the last of the requests."""
    for request in requests:
        answer = side.ask(request)
    return float(answer.split()[0])


def run(bench):
    mebibytes = 64 if bench.quick else 512
    program = bench.programs.path("checkpoints")
    with tempfile.TemporaryDirectory(dir=bench.kept("checkpoints")) as folder:
        paths = [os.path.join(folder, name) for name in ("ours", "theirs")]
        for path in paths:
            os.mkdir(path)
        with sides.Side([program, "serve", str(mebibytes), paths[0]], 2, bench.limit, waits=False) as ours, \
                sides.Side(sides.python_side("torch_checkpoint_side.py", mebibytes, paths[1]), 2, bench.limit) as theirs:
            for side in (ours, theirs):
                side.ask("save")
            for what, requests in WAYS.items():
                both = [lambda: seconds(ours, requests), lambda: seconds(theirs, requests)]
                about = rows.row("checkpoints", "%d MiB %s" % (mebibytes, what), PEER)
                yield rows.guarded(about, lambda: rows.measured(about, *pairing.take_turns(both, bench.rounds)))
