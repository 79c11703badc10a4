"""Compiles .cu files: with nvcc for GPUs, and as C++ for the emulator of the tests."""

load("@local_cuda//:defs.bzl", "CUDA_MISSING", "NVCC", "NVCC_VERSION")

# Machine code for A100 and H100, and PTX, which a driver compiles for later GPUs. Bodies use nothing that compute_80
# has not, so nvcc reads a source once for all of them: a fifth of its time less.
_ARCHITECTURES = ["--generate-code=arch=compute_80,code=[sm_80,sm_90,compute_80]"]

# Profilers show source lines (-lineinfo). The driver unpacks machine code when it loads it: a tenth of the size, for
# which nvcc 12.8 or later takes 10 % longer.
_OPTIONS = [
    "-std=c++20",
    "-O3",
    "-DNDEBUG",
    "-lineinfo",
    "--compress-mode=size",
    "-Xptxas=-v",
    "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror",
    "-Werror=all-warnings",
]

# Of the headers of a library's deps, nvcc sees those that bodies may include. So a change of another one
# compiles no kernel again.
_SEEN = [
    "ops/kernels/cuda/",
    "ops/defs/image/device_function.h",
    "ops/defs/image/grid_axis.h",
    "ops/defs/image/roi_region.h",
    "tensor/dtype.h",
    "tensor/device_fault.h",
]

def _stem(file):
    return file.basename[:-len("." + file.extension)]

def _gpu_objects_impl(ctx):
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    headers = [
        header
        for header in context.headers.to_list()
        if [seen for seen in _SEEN if header.short_path.startswith(seen)]
    ]
    objects = []
    reports = []
    for source in ctx.files.srcs:
        place = ctx.label.name + "/" + _stem(source)
        object = ctx.actions.declare_file(place + ".pic.o")
        report = ctx.actions.declare_file(place + ".ptxas.txt")
        objects.append(object)
        reports.append(report)
        if not NVCC:
            ctx.actions.run_shell(
                outputs = [object, report],
                command = "echo '%s' >&2; exit 1" % CUDA_MISSING,
                mnemonic = "Nvcc",
            )
            continue
        ctx.actions.run(
            outputs = [object, report],
            inputs = depset([source] + headers),
            executable = ctx.executable._run_nvcc,
            arguments = [report.path, NVCC] + _OPTIONS + _ARCHITECTURES +
                        ["-I.", "-I" + ctx.bin_dir.path, "-c", source.path, "-o", object.path],
            # Another nvcc in the same place compiles all again.
            env = {"NVCC_VERSION": NVCC_VERSION},
            use_default_shell_env = True,
            mnemonic = "Nvcc",
            progress_message = "Compiling %s for GPUs" % source.short_path,
        )
    return [
        DefaultInfo(files = depset(objects)),
        OutputGroupInfo(ptxas = depset(reports)),
    ]

gpu_objects = rule(
    implementation = _gpu_objects_impl,
    doc = "Objects that nvcc makes of .cu files. Output group ptxas: FILE.ptxas.txt, with the registers, stack " +
          "and spills of each kernel.",
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "deps": attr.label_list(providers = [CcInfo], doc = "Libraries with the headers."),
        "_run_nvcc": attr.label(
            default = "//third_party/cuda:run_nvcc.sh",
            allow_single_file = True,
            executable = True,
            cfg = "host",
        ),
    },
)

def _including_sources_impl(ctx):
    sources = []
    for source in ctx.files.srcs:
        file = ctx.actions.declare_file("%s/%s.cc" % (ctx.label.name, _stem(source)))
        ctx.actions.write(file, "#include \"%s\"\n" % source.path)
        sources.append(file)
    return [DefaultInfo(files = depset(sources))]

including_sources = rule(
    implementation = _including_sources_impl,
    doc = "A C++ source for each .cu file, which includes it: cc_library knows no .cu.",
    attrs = {"srcs": attr.label_list(allow_files = [".cu"])},
)
