"""A repository rule that finds the CUDA toolkit, or makes an empty repository of the same shape.

The repository offers:
  :cuda      headers and the runtime, cuBLAS and (when installed) cuDNN and NCCL to link with
  :defs.bzl  CUDA_FOUND, NVCC (path of the compiler, or ""), CUDNN_FOUND, NCCL_FOUND

It looks into $CUDA_HOME, /usr/local/cuda and /usr/lib/cuda, in this order.
"""

_MISSING = """\
# No CUDA toolkit was found. Building this target says so instead of failing on a header.
genrule(
    name = "missing",
    outs = ["missing.h"],
    cmd = "echo 'error: --config=cuda needs the CUDA toolkit: nvcc was not found in $$CUDA_HOME, " +
          "/usr/local/cuda or /usr/lib/cuda; install it or set CUDA_HOME' >&2; exit 1",
)

cc_library(
    name = "cuda",
    hdrs = [":missing"],
    visibility = ["//visibility:public"],
)
"""

_FOUND = """\
cc_library(
    name = "cuda",
    hdrs = glob(["include/**"], allow_empty = True),
    includes = ["include"],
    linkopts = [
        "-L{home}/lib64",
        "-Wl,-rpath,{home}/lib64",
        {libraries}
    ],
    visibility = ["//visibility:public"],
)
"""

def _first_existing(context, candidates):
    for candidate in candidates:
        if context.path(candidate).exists:
            return candidate
    return None

def _has_library(context, home, name):
    return _first_existing(context, [
        home + "/lib64/lib" + name + ".so",
        "/usr/lib/x86_64-linux-gnu/lib" + name + ".so",
    ]) != None

def _cuda_toolkit_impl(context):
    homes = [context.os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", "/usr/lib/cuda"]
    home = None
    for candidate in homes:
        if candidate and context.path(candidate + "/bin/nvcc").exists and \
           context.path(candidate + "/include/cuda_runtime.h").exists:
            home = candidate
            break
    definitions = "CUDA_FOUND = {}\nNVCC = {}\nCUDNN_FOUND = {}\nNCCL_FOUND = {}\n"
    if not home:
        context.file("BUILD.bazel", _MISSING)
        context.file("defs.bzl", definitions.format(False, repr(""), False, False))
        return
    libraries = [name for name in ["cudart", "cublas", "cudnn", "nccl"] if _has_library(context, home, name)]
    context.symlink(home + "/include", "include")
    context.file("BUILD.bazel", _FOUND.format(
        home = home,
        libraries = "\n        ".join([repr("-l" + name) + "," for name in libraries]),
    ))
    context.file("defs.bzl", definitions.format(
        True,
        repr(home + "/bin/nvcc"),
        "cudnn" in libraries,
        "nccl" in libraries,
    ))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    configure = True,
    environ = ["CUDA_HOME"],
    local = True,
)
