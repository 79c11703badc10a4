#include "tensor/device_id.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(DeviceIdTest, NamesAreRead) {
  EXPECT_EQ(ParseDevice("cpu").value(), (DeviceId{DeviceKind::kCpu, 0}));
  EXPECT_EQ(ParseDevice("cuda").value(), (DeviceId{DeviceKind::kCuda, 0}));
  EXPECT_EQ(ParseDevice("cuda:3").value(), (DeviceId{DeviceKind::kCuda, 3}));
}

TEST(DeviceIdTest, OtherNamesAreRefusedWithWhatIsExpected) {
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
