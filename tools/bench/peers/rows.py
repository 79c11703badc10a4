"""What a measurement says, as JSON: one row per case, peer and number of threads. Needs nothing but Python."""
import pairing

MEASURED, REFUSED, SKIPPED, FAILED = "measured", "refused", "skipped", "failed"
FORMAT = 1  # of the file; a reader refuses others


def row(group, case, peer="", threads=None):
    return {"group": group, "case": case, "peer": peer, "threads": threads}


def measured(about, ours, theirs=None, unit="s", **more):
    """Values of rounds in `unit`. With a peer the ratios of the pairs; `more` as it is, such as `difference` or `share`."""
    result = dict(about, status=MEASURED, unit=unit, ours=pairing.spread(ours).as_json(), our_rounds=ours, **more)
    if theirs is not None:
        ratios = pairing.ratios_of_pairs(ours, theirs)
        result.update(theirs=pairing.spread(theirs).as_json(), their_rounds=theirs,
                      ratio=pairing.spread(ratios).as_json())
    return result


def without_ratio(about, status, reason):
    lines = str(reason).strip().splitlines() or ["no reason was given"]
    return dict(about, status=status, reason=lines[0][:300])


def guarded(about, measure):
    """measure(), or the row that says why there is none: a wrong result is refused, anything else has failed."""
    try:
        return measure()
    except pairing.WrongResult as wrong:
        return without_ratio(about, REFUSED, wrong)
    except Exception as failure:  # one case that cannot run does not end the others
        return without_ratio(about, FAILED, str(failure) or type(failure).__name__)


def with_shares(measured_rows, limits):
    """The rows with the share of the machine's peak that their FLOPs in our seconds are, where both are known.

    A share above 1 is left out: then it is the peak that was measured beside other work.
    """
    result = []
    for entry in measured_rows:
        limit = limits.get(str(entry["threads"]))
        if entry.get("flops") and limit and entry["unit"] == "s":
            share = entry["flops"] / entry["ours"]["median"] / (limit["gflops"] * 1e9)
            entry = dict(entry, share=share if share <= 1 else None)
        result.append(entry)
    return result
