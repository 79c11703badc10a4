// What a user reads where a kernel cannot be launched.
#include "ops/kernels/cuda/blocks/launch_status.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::cuda {
namespace {

using ::testing::HasSubstr;

std::string LaunchText(int code) { return std::string(LaunchStatus(code, "Gelu").message()); }

TEST(LaunchStatusTest, ADriverOlderThanTheToolkitIsNamed) {
  EXPECT_EQ(LaunchStatus(222, "Gelu").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      LaunchText(222),
      "CUDA refuses to launch Gelu with error 222, cudaErrorUnsupportedPtxVersion; the driver "
      "is older than the CUDA toolkit of this build ('graph_runner doctor' has both "
      "versions): install a newer driver, or build with an older toolkit");
}

TEST(LaunchStatusTest, ACardWithoutCodeIsNamed) {
  EXPECT_EQ(LaunchStatus(209, "Gelu").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(LaunchText(209), HasSubstr("error 209, cudaErrorNoKernelImageForDevice; this build "
                                         "has no code that the card can run"));
  EXPECT_THAT(LaunchText(209), HasSubstr("build with a CUDA toolkit that knows the card"));
}

TEST(LaunchStatusTest, WhatElseAUserCanMendSaysHow) {
  EXPECT_THAT(LaunchText(221), HasSubstr("libnvidia-ptxjitcompiler.so.1"));
  EXPECT_THAT(LaunchText(223), HasSubstr("unset CUDA_DISABLE_PTX_JIT"));
  EXPECT_THAT(LaunchText(218), HasSubstr("unset CUDA_FORCE_PTX_JIT"));
  EXPECT_EQ(LaunchStatus(2, "Gelu").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(LaunchText(2), HasSubstr("use a smaller batch"));
  EXPECT_EQ(LaunchStatus(214, "Gelu").code(), absl::StatusCode::kUnavailable);
}

TEST(LaunchStatusTest, AnotherCodeIsOurFault) {
  EXPECT_EQ(LaunchStatus(0, "Gelu"), absl::OkStatus());
  EXPECT_EQ(LaunchStatus(701, "Gelu").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(LaunchText(701),
            "CUDA refuses to launch Gelu with error 701; 'graph_runner doctor' "
            "shows what CUDA finds");
}

}  // namespace
}  // namespace weft::cuda
