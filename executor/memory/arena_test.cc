#include "executor/memory/arena.h"

#include <cstring>

#include "gtest/gtest.h"
#include "tensor/cpu_device.h"

namespace weft {
namespace {

class ArenaTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = NewCpuDevice(DeviceInfo());
  Arena arena_{*device_};
};

TEST_F(ArenaTest, AllocatesNothingBeforeItIsAskedForMemory) {
  arena_.Reserve(1000);
  EXPECT_EQ(device_->bytes_in_use(), 0u);
  ASSERT_TRUE(arena_.Memory().ok());
  EXPECT_EQ(device_->bytes_in_use(), 1000u);
}

TEST_F(ArenaTest, IsAsLargeAsTheLargestReservation) {
  arena_.Reserve(1000);
  arena_.Reserve(3000);
  arena_.Reserve(2000);
  ASSERT_TRUE(arena_.Memory().ok());
  EXPECT_EQ(arena_.reserved_bytes(), 3000);
  EXPECT_EQ(device_->bytes_in_use(), 3000u);
}

TEST_F(ArenaTest, GrowsWithoutEverHavingTwo) {
  arena_.Reserve(1000);
  ASSERT_TRUE(arena_.Memory().ok());
  void* const small = *arena_.Memory();
  EXPECT_EQ(*arena_.Memory(), small);
  arena_.Reserve(100000);
  const absl::StatusOr<void*> large = arena_.Memory();
  ASSERT_TRUE(large.ok());
  std::memset(*large, 1, 100000);
  EXPECT_EQ(device_->peak_bytes(), 100000u);
}

TEST_F(ArenaTest, IsThereAgainAfterItsRelease) {
  arena_.Reserve(100000);
  ASSERT_TRUE(arena_.Memory().ok());
  arena_.Release();
  EXPECT_EQ(arena_.allocated_bytes(), 0);
  EXPECT_EQ(arena_.reserved_bytes(), 100000);
  EXPECT_EQ(device_->bytes_in_use(), 0u);
  const absl::StatusOr<void*> memory = arena_.Memory();
  ASSERT_TRUE(memory.ok());
  std::memset(*memory, 1, 100000);
  EXPECT_EQ(device_->bytes_in_use(), 100000u);
}

TEST_F(ArenaTest, OfNothingIsNull) {
  const absl::StatusOr<void*> memory = arena_.Memory();
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(*memory, nullptr);
}

TEST(Arena, SaysWhenTheDeviceHasTooLittle) {
  DeviceInfo info;
  info.memory_limit = 500;
  const std::unique_ptr<Device> device = NewCpuDevice(info);
  Arena arena(*device);
  arena.Reserve(1000);
  EXPECT_TRUE(absl::IsResourceExhausted(arena.Memory().status()));
}

}  // namespace
}  // namespace weft
