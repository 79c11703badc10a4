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

TEST(DeviceLookupTest, NamesAreRead) {
  EXPECT_EQ(ParseDevice("cpu").value(), (DeviceId{DeviceKind::kCpu, 0}));
  EXPECT_EQ(ParseDevice("cuda").value(), (DeviceId{DeviceKind::kCuda, 0}));
  EXPECT_EQ(ParseDevice("cuda:3").value(), (DeviceId{DeviceKind::kCuda, 3}));
}

TEST(DeviceLookupTest, OtherNamesAreRefusedWithWhatIsExpected) {
  for (const char* text : {"", "tpu", "fake", "CUDA:1", ":1"}) {
    const auto device = ParseDevice(text);
    ASSERT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(device.status().message()), HasSubstr("expected cpu, cuda")) << text;
  }
  for (const char* text : {"cuda:", "cuda:-1", "cuda:x", "cuda:1024", "cuda:1:2"}) {
    const auto device = ParseDevice(text);
    ASSERT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(device.status().message()), HasSubstr("goes its number")) << text;
  }
}

}  // namespace
}  // namespace weft
