#include "tensor/device_lookup.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(DeviceLookupTest, TheCpuIsTheProcessesOwn) {
  EXPECT_EQ(FindDevice(DeviceKind::kCpu, 0).value(), &CpuDevice());
}

// A job that asked for a GPU once trained on the CPU without a word.
TEST(DeviceLookupTest, WhatThisBuildDoesNotHaveIsRefusedByName) {
  const auto cuda = FindDevice(DeviceKind::kCuda, 1);
  EXPECT_EQ(cuda.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(cuda.status().message()), HasSubstr("cannot run on cuda:1"));
  EXPECT_EQ(FindDevice(DeviceKind::kCpu, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft
