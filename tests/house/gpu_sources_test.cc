#include "tests/house/gpu_sources.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(FindForeignIncludes, WalksFromSourcesOfGpus) {
  const std::string folder = "ops/kernels/cuda/linear/";
  const auto sources = [&folder](const std::string& body) {
    return std::map<std::string, std::string>{
        {folder + "x.cc", "#include \"absl/status/status.h\"\n#include \"ops/kernel.h\"\n"},
        {folder + "x.cu", "// Why.\n#include \"" + folder + "x_body.h\"\n"},
        {folder + "x_body.h", body},
        {"tensor/dtype.h", ""},
        {"ops/defs/image/grid_axis.h", ""},
        {"ops/kernel.h", ""}};
  };
  EXPECT_THAT(FindForeignIncludes(sources("#include \"tensor/dtype.h\"\n#include <cmath>\n"
                                          "#include \"ops/defs/image/grid_axis.h\"\n")),
              IsEmpty());
  EXPECT_THAT(
      FindForeignIncludes(sources("#include <cmath>\n#include \"ops/kernel.h\"\n"
                                  "#include \"absl/strings/str_cat.h\"\n")),
      ElementsAre("ops/kernels/cuda/linear/x_body.h: is compiled by nvcc and includes "
                  "ops/kernel.h: give it only ops/kernels/cuda/ and what "
                  "third_party/cuda/nvcc.bzl lists",
                  HasSubstr("x_body.h: is compiled by nvcc and includes absl/strings/str_cat.h")));
}

TEST(FindKernelsLeftOut, WantsEachFamilyGatheredAndEachSourceListed) {
  const std::string family = "ops/kernels/cuda/linear/";
  const std::string library =
      "weft_cuda_library(\n    name = \"linear\",\n    gpu_srcs = glob([\"*.cu\"]),\n)\n";
  const std::string all =
      "weft_cuda_library(\n    name = \"cuda\",\n    cuda_deps = [\n"
      "        \"//ops/kernels/cuda/linear\",\n    ],\n)\n";
  const std::string top = "ops/kernels/cuda/BUILD.bazel";
  EXPECT_THAT(
      FindKernelsLeftOut({{top, all}, {family + "BUILD.bazel", library}}, {family + "x.cu"}),
      IsEmpty());
  EXPECT_THAT(FindKernelsLeftOut({{top, ""}, {family + "BUILD.bazel", library}}, {}),
              ElementsAre("ops/kernels/cuda/linear/BUILD.bazel: no program has the kernels of "
                          "//ops/kernels/cuda/linear:linear: add it to cuda_deps in "
                          "ops/kernels/cuda/BUILD.bazel"));
  EXPECT_THAT(FindKernelsLeftOut({{top, all}, {family + "BUILD.bazel", library}},
                                 {family + "x.cc", family + "x.cu", family + "deeper/y.cu"}),
              ElementsAre("ops/kernels/cuda/linear/deeper/y.cu: is in no gpu_srcs of a "
                          "weft_cuda_library: nobody compiles it"));
}

TEST(FindTestsThatRunNowhere, WantsBothTagsWhereSourcesAreOfBuildsWithCuda) {
  const auto found = [](const std::string& tags) {
    return FindTestsThatRunNowhere(
        {{"ops/x/BUILD.bazel",
          "weft_test(\n    name = \"x_test\",\n    srcs = select({\n"
          "        \"//third_party:cuda_enabled\": [\"x_test.cc\"],\n"
          "        \"//conditions:default\": [],\n    }),\n" +
              tags + ")\n\nweft_test(\n    name = \"y_test\",\n    srcs = [\"y_test.cc\"],\n)\n"}});
  };
  EXPECT_THAT(found("    tags = [\n        \"manual\",\n        \"with_cuda\",\n    ],\n"),
              IsEmpty());
  const std::string complaint =
      "ops/x/BUILD.bazel: x_test is empty without CUDA, so that it would pass: tag it \"manual\" "
      "and \"with_cuda\", and tools/test runs it in a build with CUDA";
  EXPECT_THAT(found(""), ElementsAre(complaint));
  EXPECT_THAT(found("    tags = [\"manual\"],\n"), ElementsAre(complaint));
  EXPECT_THAT(found("    tags = [\"with_cuda\"],\n"), ElementsAre(complaint));
}

TEST(FindKernelsWithoutTest, WantsATestOfTheFolderOnTheEmulator) {
  const std::string library =
      "weft_cuda_library(\n    name = \"linear\",\n    gpu_srcs = glob([\"*.cu\"]),\n)\n";
  const std::string tested =
      library +
      "weft_tests(\n    name = \"tests\",\n    srcs = glob([\"*_test.cc\"]),\n"
      "    deps = [\n        \":linear_emulated\",\n        \"//ops\",\n    ],\n)\n";
  const std::string folder = "ops/kernels/cuda/linear/";
  const std::string on_emulator = "#include \"ops/testing/emulator/gpu_op_tester.h\"\n";
  const auto found = [&](const std::string& build_file, const std::string& test) {
    return FindKernelsWithoutTest(
        {{folder + "BUILD.bazel", build_file}},
        {{folder + "x.cu", ""}, {folder + "x.cc", on_emulator}, {folder + "x_test.cc", test}});
  };
  EXPECT_THAT(found(tested, on_emulator), IsEmpty());
  EXPECT_THAT(
      found(library, on_emulator),
      ElementsAre("ops/kernels/cuda/linear/x.cu: no test of its folder runs it on the emulator: "
                  "give one :linear_emulated and, for example, CheckOnEmulatedGpu "
                  "(ops/testing/emulator/gpu_op_tester.h)"));
  EXPECT_THAT(found(tested, "#include \"ops/op.h\"\n"), ElementsAre(HasSubstr("linear/x.cu: no")));
  std::string other = tested;
  other.replace(other.find(":linear_emulated"), 16, ":conv_emulated");
  EXPECT_THAT(found(other, on_emulator), ElementsAre(HasSubstr("linear/x.cu: no test")));
}

}  // namespace
}  // namespace weft::testing
