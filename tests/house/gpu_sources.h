// What sources of kernels for GPUs keep to, for tests of the house.
#ifndef WEFT_TESTS_HOUSE_GPU_SOURCES_H_
#define WEFT_TESTS_HOUSE_GPU_SOURCES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace weft::testing {

// What the .cu files among `sources` (texts by path from the root) include, themselves or through
// headers of ours, that nvcc must not see: Abseil, and headers outside ops/kernels/cuda/ but for
// the plain ones. One text for each. third_party/cuda/nvcc.bzl has the same list.
std::vector<std::string> FindForeignIncludes(const std::map<std::string, std::string>& sources);

// Of ops/kernels/cuda/: the .cu files that no gpu_srcs of `build_files` (texts by path) lists, and
// the libraries that its own BUILD.bazel does not gather, so that no program would have them. One
// text for each. `sources`: paths of files.
std::vector<std::string> FindKernelsLeftOut(const std::map<std::string, std::string>& build_files,
                                            const std::vector<std::string>& sources);

// The tests whose sources a build without CUDA leaves out, and that are not tagged "manual" and
// "with_cuda": tools/test runs those so tagged with --config=cuda. One text each.
std::vector<std::string> FindTestsThatRunNowhere(
    const std::map<std::string, std::string>& build_files);

// The .cu files of ops/kernels/cuda/ that no test runs on the emulator. A test does if it is in the
// same BUILD file, depends on what weft_cuda_library makes for it (`NAME_emulated`), and one of its
// sources includes a header of ops/testing/emulator/. One text for each. `build_files` and
// `sources`: texts by path. Whether it runs each line: tools/emulator_coverage.
std::vector<std::string> FindKernelsWithoutTest(
    const std::map<std::string, std::string>& build_files,
    const std::map<std::string, std::string>& sources);

}  // namespace weft::testing

#endif  // WEFT_TESTS_HOUSE_GPU_SOURCES_H_
