"""Times of sides that take turns, and what their ratios say. Needs nothing but Python."""
import math
import statistics
import time
from dataclasses import dataclass


class WrongResult(Exception):
    """The sides compute different things: a ratio of their times would say nothing."""


@dataclass(frozen=True)
class Spread:
    """A median with the quartiles around it."""
    low: float
    median: float
    high: float

    def as_json(self):
        return {"p25": self.low, "median": self.median, "p75": self.high}


def quantile(values, part):
    """The value below which `part` (0 to 1) of the values lie, linear between neighbours (as numpy's)."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread(values):
    return Spread(quantile(values, 0.25), quantile(values, 0.5), quantile(values, 0.75))


def ratios_of_pairs(ours, theirs):
    """ours / theirs of each round: what drifts from round to round is in both, and falls out."""
    if len(ours) != len(theirs) or not ours:
        raise ValueError("%d of ours and %d of theirs are no pairs" % (len(ours), len(theirs)))
    if min(ours) <= 0 or min(theirs) <= 0:
        raise ValueError("a time that is not above 0")
    return [a / b for a, b in zip(ours, theirs)]


def take_turns(sides, rounds, pause=0.0):
    """Calls each side in turn, `rounds` times: a list of what each returned, one per side.

    `pause` seconds lie before each call: threads of the side before may still spin.
    """
    results = [[] for _ in sides]
    for _ in range(rounds):
        for side, values in zip(sides, results):
            time.sleep(pause)
            values.append(side())
    return results


def runs_of_a_round(seconds_of_a_run, seconds_of_a_round, most=1000):
    """How many runs a round has: at least one, and no more than fit into its time."""
    return max(1, min(most, int(seconds_of_a_round / max(seconds_of_a_run, 1e-9))))


def relative_gap(ours, truth):
    """The largest difference of two lists of numbers, relative to the truth; infinite for lists of other lengths."""
    if len(ours) != len(truth) or not truth or not all(math.isfinite(x) for x in ours):
        return math.inf
    return max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(ours, truth))


def hold_equal(what, gap, tolerance):
    """Refuses a comparison whose results differ by more than `tolerance`, or by something that is no number."""
    if not gap <= tolerance:
        raise WrongResult("%s differ by %.1e, more than %.0e" % (what, gap, tolerance))
    return gap


def median(values):
    return statistics.median(values)
