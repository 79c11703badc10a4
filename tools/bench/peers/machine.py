"""The machine of a measurement: processor, instruction set, limits, and what else ran. Needs nothing but Python."""
import json
import os
import subprocess
import time

# What limits each of them to AVX2. onnxruntime has no switch: its kernels ask the processor.
LIMITS = {
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2",
             "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}
LIMITED_PEERS = ("pytorch", "torch.compile", "ddp")


def processor(cpuinfo):
    """The name that /proc/cpuinfo has, with family and model: virtual machines hide names."""
    fields = {}
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() not in fields:
            fields[key.strip()] = value.strip()
    name = fields.get("model name", "unknown processor")
    return "%s, family %s, model %s" % (name, fields.get("cpu family", "?"), fields.get("model", "?"))


def environment(limit):
    """The environment of all sides under an instruction-set limit, or under none."""
    return dict(os.environ, **LIMITS.get(limit, {}))


def cores():
    return len(os.sched_getaffinity(0))


def on_cores(count):
    """For a child process before it starts: only the first `count` cores that we may use."""
    chosen = sorted(os.sched_getaffinity(0))[:count]
    return lambda: os.sched_setaffinity(0, chosen)


def commit(folder):
    done = subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def limits(program, threads, limit):
    """Peak GFLOP/s and GB/s for each number of threads, as //tools/bench:machine_limits measures them."""
    result = {}
    for count in threads:
        done = subprocess.run([program, str(count)], capture_output=True, text=True, check=True,
                              env=environment(limit), preexec_fn=on_cores(count))
        result[str(count)] = json.loads(done.stdout)
    return result


def higher(one, other):
    """Of two measured limits the higher in each part: what disturbs a machine only lowers them."""
    return {count: {key: max(value, other[count][key]) if key in ("gflops", "gigabytes") else value
                    for key, value in values.items()} for count, values in one.items()}


def describe(root, limit):
    with open("/proc/cpuinfo") as file:
        name = processor(file.read())
    return {"processor": name, "cores": cores(), "limit": limit or "", "load": os.getloadavg()[0],
            "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit(root)}
