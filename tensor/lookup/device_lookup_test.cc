#include "tensor/lookup/device_lookup.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(DeviceLookupTest, TheCpuIsTheProcessesOwn) {
  EXPECT_EQ(FindDevice(DeviceKind::kCpu, 0).value(), &CpuDevice());
  EXPECT_TRUE(CheckDevice(DeviceKind::kCpu, 0).ok());
  EXPECT_EQ(FindDevice(DeviceKind::kCpu, 1).status(), CheckDevice(DeviceKind::kCpu, 1));
  EXPECT_EQ(
      CheckDevice(DeviceKind::kCpu, 1),
      absl::InvalidArgumentError("this process cannot run on cpu:1: a process has cpu:0 alone"));
}

// A job that asked for a GPU once trained on the CPU without a word. No machine has this card.
TEST(DeviceLookupTest, WhatIsNotThereIsRefusedByName) {
  const auto cuda = FindDevice(DeviceKind::kCuda, 1000);
  ASSERT_FALSE(cuda.ok());
  EXPECT_THAT(std::string(cuda.status().message()), HasSubstr("cannot run on cuda:1000"));
  EXPECT_EQ(CheckDevice(DeviceKind::kCuda, 1000), cuda.status());
  const auto fake = FindDevice(DeviceKind::kFake, 0);
  EXPECT_EQ(fake.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(fake.status().message()), HasSubstr("fake:0"));
}

TEST(DeviceLookupTest, ADeviceIsMadeOnce) {
  const auto first = FindDevice(DeviceKind::kCuda, 0);
  if (!first.ok()) {
    EXPECT_THAT(std::string(first.status().message()), HasSubstr("cannot run on cuda:0"));
    GTEST_SKIP() << first.status();
  }
  EXPECT_EQ(FindDevice(DeviceKind::kCuda, 0).value(), *first);
  EXPECT_EQ((*first)->info().name, "cuda:0");
}

}  // namespace
}  // namespace weft
