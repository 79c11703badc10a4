"""Compiler options and macros that every BUILD file of Weft loads."""

load("//third_party/cuda:nvcc.bzl", "gpu_objects", "including_sources")

# Every library, binary and test of ours: copts = WEFT_COPTS.
WEFT_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wnon-virtual-dtor",
    "-Woverloaded-virtual",
    "-Wimplicit-fallthrough",
]

# Headers that are compiled once for all sources. Clang goes without: it checks that each file includes what
# it uses.
_PRECOMPILED = "//third_party/precompiled:"

def _begin_with(name):
    return select({
        "//third_party:clang": [],
        "//conditions:default": ["-Winvalid-pch", "-include", "third_party/precompiled/%s.h" % name],
    })

def _precompiled(name):
    return select({
        "//third_party:clang": [],
        "//conditions:default": [_PRECOMPILED + name],
    })

def _header_of_package():
    """The precompiled header of a product library or program of this package."""
    return "for_tools" if native.package_name().startswith("tools") else "for_libraries"

# Sources of a library that are compiled as one file: what their headers and templates cost is paid once. More
# would make a change of one of them slow.
_GROUP = 6

def _source_groups_impl(ctx):
    sources = ctx.files.srcs
    count = (len(sources) + _GROUP - 1) // _GROUP
    groups = []
    for i in range(count):
        group = ctx.actions.declare_file("%s_%d.cc" % (ctx.label.name, i))
        members = sources[i * len(sources) // count:(i + 1) * len(sources) // count]
        ctx.actions.write(group, "".join(["#include \"%s\"\n" % member.path for member in members]))
        groups.append(group)
    return [DefaultInfo(files = depset(groups))]

_source_groups = rule(
    implementation = _source_groups_impl,
    attrs = {"srcs": attr.label_list(allow_files = [".cc"])},
)

def _grouped(name, srcs):
    """Compiles sources in groups, but for Clang, which shows that each stands alone.

    Returns:
      srcs, textual_hdrs for the library.
    """
    sources = [source for source in srcs if source.endswith(".cc")]
    if len(sources) < 2:
        return srcs, []
    groups = name + "_group"
    _source_groups(name = groups, srcs = sources, visibility = ["//visibility:private"])
    others = [source for source in srcs if not source.endswith(".cc")]
    return others + select({
        "//third_party:clang": sources,
        "//conditions:default": [groups],
    }), select({
        "//third_party:clang": [],
        "//conditions:default": sources,
    })

def weft_library(name, srcs = [], copts = [], deps = [], testonly = None, openmp = False, grouped = None, **kwargs):
    """A cc_library of ours: all warnings are errors, common headers are precompiled.

    Args:
      name: the cc_library.
      srcs: sources and headers that nobody else includes.
      copts: more compiler options.
      deps: what it includes.
      testonly: only tests may depend on it.
      openmp: its loops are parallel by OpenMP's directives.
      grouped: compile several sources as one: names in their unnamed namespaces must differ. By default all but
        CPU kernels, where code costs more than headers, and Highway compiles a file several times; and srcs of a
        select.
      **kwargs: as for cc_library.
    """
    header = "for_tests" if testonly else ("for_openmp" if openmp else _header_of_package())
    if openmp:
        copts = ["-fopenmp"] + copts
        deps = deps + ["//third_party:openmp"]
    textual = kwargs.pop("textual_hdrs", [])
    if grouped == None:
        grouped = type(srcs) == "list" and not native.package_name().startswith("ops/kernels/cpu")
    if grouped:
        srcs, members = _grouped(name, srcs)
        textual = textual + members

        # GCC takes an included source for a header, whose types must not use its unnamed namespace.
        copts = select({
            "//third_party:clang": [],
            "//conditions:default": ["-Wno-subobject-linkage"],
        }) + copts
    native.cc_library(
        name = name,
        srcs = srcs,
        textual_hdrs = textual,
        copts = WEFT_COPTS + _begin_with(header) + copts,
        deps = deps + _precompiled(header),
        testonly = testonly,
        **kwargs
    )

def _twin(label, suffix):
    """The label of what weft_cuda_library makes beside `label`: "//a/b", "_x" to "//a/b:b_x"."""
    return label + suffix if ":" in label else "%s:%s%s" % (label, label.split("/")[-1], suffix)

def weft_cuda_library(
        name,
        srcs = [],
        hdrs = [],
        gpu_srcs = [],
        deps = [],
        cuda_deps = [],
        emulated_deps = [],
        **kwargs):
    """Kernels for GPUs: with --config=cuda a library of them, without it an empty one, and a twin for tests.

    `<name>` has srcs, and gpu_srcs compiled by nvcc. `<name>_ptxas` has, for each x.cu and those of
    cuda_deps, x.ptxas.txt: registers, stack and spills of its kernels. `<name>_emulated` has srcs, and gpu_srcs compiled as C++ for the emulator
    (//ops/testing/emulator); tests alone may use it, and not with --config=cuda, whose programs have nvcc's kernels.
    `<name>_factories` has srcs and hdrs alone, which are the same for both.

    Args:
      name: the library.
      srcs: C++ sources with the factories of kernels, and headers that nobody else includes; no CUDA in them.
      hdrs: headers of bodies and launches.
      gpu_srcs: .cu files. They may include hdrs, those of cuda_deps and //ops/kernels/cuda/language, and
        what _SEEN of third_party/cuda/nvcc.bzl lists.
      deps: what srcs and hdrs include, but for cuda_deps.
      cuda_deps: other libraries of this kind.
      emulated_deps: more that only `<name>_emulated` needs.
      **kwargs: as for cc_library, for all of them.
    """
    factories = name + "_factories"
    weft_library(
        name = factories,
        srcs = srcs,
        hdrs = hdrs,
        deps = deps + [_twin(dep, "_factories") for dep in cuda_deps],
        alwayslink = True,
        **kwargs
    )
    objects = []
    if gpu_srcs:
        gpu_objects(
            name = name + "_gpu",
            srcs = gpu_srcs,
            tags = ["manual"],
            visibility = ["//visibility:private"],
            deps = [":" + factories],
        )
        objects = [":%s_gpu" % name]
    native.filegroup(
        name = name + "_own_ptxas",
        srcs = objects,
        output_group = "ptxas",
        tags = ["manual"],
        visibility = ["//visibility:private"],
    )
    native.filegroup(
        name = name + "_ptxas",
        srcs = [":%s_own_ptxas" % name] + [_twin(dep, "_ptxas") for dep in cuda_deps],
        tags = ["manual"],
        visibility = ["//ops:__subpackages__"],
    )
    native.cc_library(
        name = name,
        srcs = select({
            "//third_party:cuda_enabled": objects,
            "//conditions:default": [],
        }),
        deps = select({
            "//third_party:cuda_enabled": [":" + factories, "//third_party:cuda"] + cuda_deps,
            "//conditions:default": [],
        }),
        alwayslink = True,
        **kwargs
    )
    emulated = []
    if gpu_srcs:
        including_sources(
            name = name + "_as_cpp",
            srcs = gpu_srcs,
            visibility = ["//visibility:private"],
        )
        emulated = [":%s_as_cpp" % name]
    native.cc_library(
        name = name + "_emulated",
        testonly = True,
        # What is built for the kernels of nvcc leaves the tests of these out: no program can have both.
        target_compatible_with = select({
            "//third_party:cuda_enabled": ["@platforms//:incompatible"],
            "//conditions:default": [],
        }),
        # The header is for tools/emulator_coverage: the precompiled one does not fit its options, and is read as text.
        srcs = emulated + (["//third_party/precompiled:standard.h"] if emulated else []),
        textual_hdrs = gpu_srcs,
        # Bodies are many templates and run little: -O1. GCC takes an included source for a header, whose types must
        # not use its unnamed namespace.
        copts = WEFT_COPTS + _begin_with("for_tests") +
                ["-include", "ops/testing/emulator/emulated_launch.h", "-O1"] +
                select({
                    "//third_party:clang": [],
                    "//conditions:default": ["-Wno-subobject-linkage"],
                }),
        deps = [":" + factories, "//ops/testing/emulator"] + [_twin(dep, "_emulated") for dep in cuda_deps] +
               emulated_deps + _precompiled("for_tests"),
        alwayslink = True,
        **kwargs
    )
def _uninstrumented():
    """What ThreadSanitizer is told of libraries that were not compiled for it."""
    return select({
        "//third_party:tsan": ["//third_party:tsan_suppressions"],
        "//conditions:default": [],
    })

def weft_binary(name, copts = [], deps = [], **kwargs):
    """A cc_binary of ours."""
    header = _header_of_package()
    native.cc_binary(
        name = name,
        copts = WEFT_COPTS + _begin_with(header) + copts,
        deps = deps + _precompiled(header) + _uninstrumented(),
        **kwargs
    )

def weft_test(name, size = "small", copts = [], deps = [], gtest = "//third_party:gtest", **kwargs):
    """A GoogleTest program.

    Args:
      name: the cc_test.
      size: as for any test.
      copts: more compiler options.
      deps: libraries under test.
      gtest: GoogleTest with its main function, or "//third_party:gtest_no_main".
      **kwargs: as for cc_test.
    """
    native.cc_test(
        name = name,
        size = size,
        copts = WEFT_COPTS + _begin_with("for_tests") + copts,
        deps = deps + [gtest] + _precompiled("for_tests") + _uninstrumented(),
        **kwargs
    )

def weft_tests(name, srcs, also_avx2 = False, deps = [], **kwargs):
    """A weft_test for each source, named after it, and a test_suite of them all.

    Args:
      name: the test_suite.
      srcs: sources of one test each.
      also_avx2: each also runs as <name>_avx2_test, with kernels limited to AVX2 (DNNL_MAX_CPU_ISA), so
        that a machine with more tests both.
      deps: libraries under test.
      **kwargs: as for weft_test.
    """
    tests = []
    for source in srcs:
        test = source[:-len(".cc")]
        tests.append(test)
        weft_test(name = test, srcs = [source], deps = deps, **kwargs)
        if not also_avx2:
            continue
        limited = test[:-len("_test")] + "_avx2_test"
        tests.append(limited)

        # The same program once more: another one would take as long to link.
        native.sh_test(
            name = limited,
            size = kwargs.get("size", "small"),
            srcs = ["//third_party:run_program.sh"],
            args = ["$(rootpath :%s)" % test],
            data = [":" + test],
            env = {"DNNL_MAX_CPU_ISA": "AVX2"},
        )
    native.test_suite(name = name, tests = tests)

def weft_proto_library(name, src, deps = [], grpc = False, visibility = None):
    """A .proto file as a C++ library: `#include "folder/NAME_OF_SRC.pb.h"`.

    Generated code is not compiled with -Werror.

    Args:
      name: the cc_library; `<name>_source` holds the .proto file.
      src: one .proto file of this folder; it imports others by their path from the repository root.
      deps: other weft_proto_library targets whose files src imports.
      grpc: also generate the services: `#include "folder/NAME_OF_SRC.grpc.pb.h"`.
      visibility: as for any target.
    """
    if not src.endswith(".proto"):
        fail("weft_proto_library(%s): src must be a .proto file, not %s" % (name, src))
    stem = src[:-len(".proto")]
    headers = [stem + ".pb.h"]
    sources = [stem + ".pb.cc"]
    command = "/usr/bin/protoc --proto_path=. --cpp_out=$(GENDIR)"
    if grpc:
        headers.append(stem + ".grpc.pb.h")
        sources.append(stem + ".grpc.pb.cc")
        command += " --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin --grpc_out=$(GENDIR)"
    imported = [dep + "_source" for dep in deps]
    native.filegroup(
        name = name + "_source",
        srcs = [src] + imported,
        visibility = visibility,
    )
    native.genrule(
        name = name + "_generate",
        srcs = [src] + imported,
        outs = headers + sources,
        cmd = command + " $(location %s)" % src,
        message = "Generating protobuf code for",
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = ["-w"],
        visibility = visibility,
        deps = deps + ["//third_party:protobuf"] + (["//third_party:grpc"] if grpc else []),
    )

def weft_fuzz_test(name, srcs, deps = [], corpus = [], size = "small", mutator = []):
    """A libFuzzer target and a test that replays its corpus.

    `<name>` is the fuzzer; it builds only with --config=fuzz and is tagged `fuzz` and `manual`:
        bazel run --config=fuzz //folder:<name> -- -max_total_time=60 FOLDER_OF_MORE_INPUTS
    `<name>_replay` runs the same entry point once over each file of the corpus, with every compiler.

    Args:
      name: the fuzz target.
      srcs: sources that define LLVMFuzzerTestOneInput.
      deps: libraries under test.
      corpus: files to start from and to replay.
      size: of the replay test.
      mutator: libraries that define LLVMFuzzerCustomMutator; the replay does without.
    """
    weft_binary(
        name = name,
        testonly = True,
        srcs = srcs,
        linkopts = ["-fsanitize=fuzzer"],
        data = corpus,
        tags = ["fuzz", "manual"],
        deps = deps + mutator,
    )
    native.cc_test(
        name = name + "_replay",
        size = size,
        srcs = srcs,
        args = ["$(locations %s)" % label for label in corpus],
        copts = WEFT_COPTS,
        data = corpus,
        deps = deps + ["//tests/fuzz:replay_main"],
    )
