"""What is read from the lines that benchmarks print for people. Needs nothing but Python."""
import re

import rows

SPEED = re.compile(r"([A-Za-z][\w/ ]*?) ([\d.]+)(?: GB/s)? \([\d.]+ to [\d.]+\)")


def speeds(text):
    """{"1 MiB": {"grpc/unix": GB/s, "raw tcp": ...}} of the lines of transport_benchmark that compare with sockets."""
    result = {}
    for line in text.splitlines():
        size, colon, rest = line.strip().partition(": ")
        if not colon or not re.fullmatch(r"\d+ MiB", size):
            continue
        for name, speed in SPEED.findall(rest.split(";")[0]):
            result.setdefault(size, {})[name.strip()] = float(speed)
    return result


def compile_rows(text):
    """A row for each line of numbers of compile_time's table.

    Its columns are micro-batches and buffers, then seconds of partition, layout, lowering and compile.
    """
    model = ""
    for line in text.splitlines():
        words = line.split()
        if words and words[0].rstrip(",") in ("lenet", "gpt"):
            model = words[0].rstrip(",")
        elif words and words[0].isdigit():
            partition, _, _, compiling = map(float, words[2:6])
            about = rows.row("compile", "training step of %s, %s micro-batches" % (model, words[0]), threads=1)
            yield rows.measured(about, [1e6 * (partition + compiling) / int(words[1])], unit="us per buffer",
                                buffers=int(words[1]))
