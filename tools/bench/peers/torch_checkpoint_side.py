#!/usr/bin/env python3
"""torch.save and torch.load on request, as tools/bench/checkpoints.cc answers: "save", "load", and "cold", which makes the
system forget the file.

    torch_checkpoint_side.py MIB FOLDER
"""
import os
import sys
import time

import torch

SIDE = 2048  # 16 MiB of float32, as a variable there


def save(state, path):
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def forget(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def load(state, path):
    loaded = torch.load(path)
    for name in (min(state), max(state)):
        if not torch.equal(loaded[name], state[name]):
            raise RuntimeError("another value was loaded")


def main():
    mebibytes, folder = int(sys.argv[1]), sys.argv[2]
    path = os.path.join(folder, "state.pt")
    state = {"v%d" % i: torch.randn(SIDE, SIDE) for i in range(max(1, mebibytes // 16))}
    print("opened", torch.__version__, flush=True)
    for request in map(str.strip, sys.stdin):
        begin = time.perf_counter()
        if request == "save":
            save(state, path)
        elif request == "load":
            load(state, path)
        elif request == "cold":
            forget(path)
        print("%.6f 0" % (time.perf_counter() - begin), flush=True)


if __name__ == "__main__":
    main()
