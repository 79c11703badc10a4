"""The section of docs/measurements.md that JSON files of tools/bench/run make. Needs nothing but Python."""
import json
import string

import rows

BEGIN = "<!-- Made by tools/bench/run --table from here -->"
END = "<!-- Made by tools/bench/run --table up to here -->"

# Title and unit of a group's table, in the order of the page.
GROUPS = {
    "inference": "Inference",
    "operators": "Single operators",
    "training": "Training steps",
    "compile": "From a file to a program",
    "executor": "A chain of tiny operators",
    "scaling": "Two worker processes",
    "transport": "Messages between two processes",
    "memory": "Peak memory",
    "checkpoints": "Checkpoints",
    "exports": "Trained files in onnxruntime",
    "curves": "Losses beside PyTorch's",
    "held_out": "Loss on text that was held out",
}
UNITS = {"s": (1e3, "ms")}  # how seconds are shown
NOTE = """Each ratio is our value by the peer's, below 1 where Weft needs less. It is the median of pairs that took turns in one run, with
the quartiles behind it. The sides' results were compared first. The share is that of the limit in the first table: float32
multiply-adds in registers."""


class Unreadable(Exception):
    """A file that is not one of tools/bench/run's, or a page without the two markers."""


def read(path):
    try:
        with open(path) as file:
            result = json.load(file)
    except (OSError, ValueError) as error:
        raise Unreadable("cannot read %s: %s" % (path, error)) from error
    if not isinstance(result, dict) or result.get("format") != rows.FORMAT:
        raise Unreadable("%s is no file of tools/bench/run with format %d" % (path, rows.FORMAT))
    return result


def number(value):
    """Three digits that count: 0.00123, 1.23, 123, 4,560."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return "{:,.0f}".format(value)
    text = "%.3g" % value
    return text if "e" not in text or abs(value) < 1e-4 else "%f" % value


def with_unit(spread, unit):
    factor, name = UNITS.get(unit, (1, unit))
    return number(spread["median"] * factor) + ("" if name in ("gap", "loss") else " " + name)


def ratio(spread):
    return "**%.2f** (%.2f to %.2f)" % (spread["median"], spread["p25"], spread["p75"])


def share(row):
    return "%.0f %%" % (100 * row["share"]) if row.get("share") else ""


def line(cells):
    return "| " + " | ".join(cells) + " |"


def cells_of(row, letter):
    threads = "" if row["threads"] is None else str(row["threads"])
    begin = [row["case"], row["peer"], threads, letter]
    if row["status"] != rows.MEASURED:
        return begin + [row["status"] + ": " + row["reason"].replace("|", "/"), "", "", ""]
    theirs = with_unit(row["theirs"], row["unit"]) if "theirs" in row else ""
    return begin + [with_unit(row["ours"], row["unit"]), theirs, ratio(row["ratio"]) if "ratio" in row else "", share(row)]


def table_of_machines(results):
    lines = [line(["", "processor", "instruction set", "cores", "date", "commit", "peers", "limits by threads"]),
             "|---" * 8 + "|"]
    for letter, result in zip(string.ascii_uppercase, results):
        machine = result["machine"]
        limits = machine.get("limits", {})
        level = next((values["instruction_set"] for values in limits.values()), "unknown")
        limited = ", limited to %s" % machine["limit"] if machine["limit"] else ""
        peers = ", ".join("%s %s" % item for item in sorted(result["peers"].items()))
        peaks = "; ".join("%s: %s GFLOP/s, %s GB/s" % (count, number(values["gflops"]), number(values["gigabytes"]))
                          for count, values in sorted(limits.items()))
        lines.append(line([letter, machine["processor"], level + limited, str(machine["cores"]), machine["date"],
                           machine["commit"], peers, peaks]))
    return lines


def remarks(results):
    lines = []
    for letter, result in zip(string.ascii_uppercase, results):
        machine = result["machine"]
        if machine["load"] >= machine["cores"]:
            lines.append("%s ran beside other work (load %.1f), so its times are leads." % (letter, machine["load"]))
        if result["quick"]:
            lines.append("%s was a quick run: few short rounds, which only show that it works." % letter)
        if machine["limit"]:
            lines.append("On %s the limit holds for Weft and PyTorch; onnxruntime has no switch, and uses all that the "
                         "processor has." % letter)
    return lines


def memory_rows(result):
    """What the rows of other groups say about peak memory, as rows of their own."""
    for row in result["rows"]:
        memory = row.get("memory")
        if row["status"] == rows.MEASURED and memory and memory["theirs"] > 0:
            ours, theirs = memory["ours"] / 2**20, memory["theirs"] / 2**20
            yield rows.measured(rows.row("memory", "%s, %s" % (row["group"], row["case"]), row["peer"], row["threads"]),
                                [ours], [theirs], unit="MiB")


def rows_of_group(results, group):
    """(row, letter) of all files: cases in the order of the first file that has them, then threads, then letters."""
    places, found = {}, []
    for letter, result in zip(string.ascii_uppercase, results):
        own = [row for row in result["rows"] if row["group"] == group]
        for row in own + (list(memory_rows(result)) if group == "memory" else []):
            place = places.setdefault((row["case"], row["peer"]), len(places))
            found.append((place, row["threads"] or 0, letter, row))
    return [(row, letter) for _, _, letter, row in sorted(found, key=lambda entry: entry[:3])]


def section(results):
    """The text between the markers."""
    if len(results) > len(string.ascii_uppercase):
        raise Unreadable("%d files are more than there are letters for them" % len(results))
    lines = ["", *table_of_machines(results), "", *NOTE.splitlines(), *remarks(results)]
    for group, title in GROUPS.items():
        entries = rows_of_group(results, group)
        if entries:
            lines += ["", "### " + title, "", line(["case", "peer", "threads", "on", "Weft", "peer's", "ratio", "share"]),
                      "|---" * 8 + "|"] + [line(cells_of(*entry)) for entry in entries]
    return "\n".join(lines) + "\n\n"


def replaced(page, text):
    """The page with `text` between its markers."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise Unreadable("the page has to have these two lines once, in this order: %s and %s" % (BEGIN, END))
    begin = page.index(BEGIN) + len(BEGIN)
    return page[:begin] + "\n" + text + page[page.index(END):]
