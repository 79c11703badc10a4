"""What all groups of a measurement share: programs, data, threads, and how long it may take."""
import os

import sides


class Bench:
    """The settings of one run of tools/bench/run."""

    def __init__(self, arguments):
        self.programs = sides.Programs(arguments.programs)
        self.corpora = arguments.corpora
        self.work = arguments.work
        self.threads = arguments.threads
        self.limit = arguments.isa
        self.quick = arguments.quick
        self.cases = arguments.cases
        self.rounds = 3 if arguments.quick else 15
        self.seconds = 0.05 if arguments.quick else 0.3  # of a round
        self.pause = 0.03  # until the other side's threads no longer spin

    def chosen(self, cases):
        """Those of the cases (a list, or a dictionary by name) that --cases asks for: all, where it is not given."""
        names = [name for name in cases if not self.cases or any(part in name for part in self.cases)]
        return {name: cases[name] for name in names} if isinstance(cases, dict) else names

    def kept(self, name):
        """A folder of its own for what is made once."""
        path = os.path.join(self.work, name)
        os.makedirs(path, exist_ok=True)
        return path

    def need_corpora(self):
        if not self.corpora or not os.path.isdir(os.path.join(self.corpora, "training-models")):
            raise sides.Missing("no training models: set WEFT_CORPORA or --corpora to the unpacked corpora")
