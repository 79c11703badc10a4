"""A repository rule that finds the CUDA toolkit, or makes an empty repository of the same shape.

The repository offers:
  :cuda      headers of CUDA, and its runtime as a static library: a program with it needs no driver to start.
             Headers alone of the libraries that are opened at run time (cuBLASLt, cuDNN, NCCL, NVRTC)
  :defs.bzl  CUDA_FOUND, CUDA_MISSING (what to say where it is not), NVCC (path of the compiler, or ""),
             NVCC_VERSION, and which libraries have headers here: CUBLASLT_FOUND, CUDNN_FOUND, NCCL_FOUND,
             NVRTC_FOUND

It looks into $CUDA_HOME, /usr/local/cuda and /usr/lib/cuda, in this order. cuDNN and NCCL may also lie in
/usr/include, where Debian's and NVIDIA's packages put them.
"""

_NOT_FOUND = "error: --config=cuda needs the CUDA toolkit: nvcc was not found in $CUDA_HOME, /usr/local/cuda or " + \
             "/usr/lib/cuda; install it or set CUDA_HOME"
_NO_RUNTIME = "error: --config=cuda needs libcudart_static.a, which the CUDA toolkit in %s lacks; install it " + \
              "(package cuda-cudart-dev)"
_BROKEN = "error: --config=cuda needs the CUDA toolkit, and %s/bin/nvcc --version does not run; install it anew or " + \
          "set CUDA_HOME"

_MISSING = """\
# No usable CUDA toolkit was found. Building this target says so instead of failing on a header.
genrule(
    name = "missing",
    outs = ["missing.h"],
    cmd = "echo '{message}' >&2; exit 1",
)

cc_library(
    name = "cuda",
    hdrs = [":missing"],
    visibility = ["//visibility:public"],
)
"""

# Headers of host code; those that nvcc alone includes would be thousands.
_FOUND = """\
cc_library(
    name = "cuda",
    hdrs = glob(["include/*.h", "include/*.hpp", "include/crt/*"]),
    includes = ["include"],
    linkopts = [
        "{runtime}",
        "-ldl",
        "-lrt",
        "-lpthread",
    ],
    visibility = ["//visibility:public"],
)
"""

_DEFINITIONS = """\
CUDA_FOUND = {found}
CUDA_MISSING = {message}
NVCC = {nvcc}
NVCC_VERSION = {version}
CUBLASLT_FOUND = {cublaslt}
CUDNN_FOUND = {cudnn}
NCCL_FOUND = {nccl}
NVRTC_FOUND = {nvrtc}
"""

def _first_existing(context, candidates):
    for candidate in candidates:
        if context.path(candidate).exists:
            return candidate
    return None

def _has_header(context, home, name):
    return _first_existing(context, [
        folder + "/" + name
        for folder in [home + "/include", "/usr/include", "/usr/include/x86_64-linux-gnu"]
    ]) != None

# The first of $CUDA_HOME and the usual places that has nvcc.
def _find_home(context):
    for home in [context.os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", "/usr/lib/cuda"]:
        if home and context.path(home + "/bin/nvcc").exists and \
           context.path(home + "/include/cuda_runtime.h").exists:
            return home
    return None

def _make_empty(context, message):
    context.file("BUILD.bazel", _MISSING.format(message = message.replace("$", "$$")))
    context.file("defs.bzl", _DEFINITIONS.format(
        found = False,
        message = repr(message),
        nvcc = repr(""),
        version = repr(""),
        cublaslt = False,
        cudnn = False,
        nccl = False,
        nvrtc = False,
    ))

def _cuda_toolkit_impl(context):
    home = _find_home(context)
    if not home:
        _make_empty(context, _NOT_FOUND)
        return
    runtime = _first_existing(context, [
        folder + "/libcudart_static.a"
        for folder in [home + "/lib64", home + "/lib", home + "/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu"]
    ])
    if not runtime:
        _make_empty(context, _NO_RUNTIME % home)
        return
    asked = context.execute([home + "/bin/nvcc", "--version"])

    # "Cuda compilation tools, release 13.0, V13.0.88"
    versions = [line for line in asked.stdout.split("\n") if "release" in line]
    if asked.return_code != 0 or not versions:
        _make_empty(context, _BROKEN % home)
        return
    context.symlink(home + "/include", "include")
    context.file("BUILD.bazel", _FOUND.format(runtime = runtime))
    context.file("defs.bzl", _DEFINITIONS.format(
        found = True,
        message = repr(""),
        nvcc = repr(home + "/bin/nvcc"),
        version = repr(versions[0]),
        cublaslt = _has_header(context, home, "cublasLt.h"),
        cudnn = _has_header(context, home, "cudnn.h"),
        nccl = _has_header(context, home, "nccl.h"),
        nvrtc = _has_header(context, home, "nvrtc.h"),
    ))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    configure = True,
    environ = ["CUDA_HOME"],
    local = True,
)
