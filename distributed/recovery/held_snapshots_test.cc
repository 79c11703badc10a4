// What a worker holds it gives as it was, and says where it has changed.
#include "distributed/recovery/held_snapshots.h"

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/checksum.h"
#include "tensor/tensor.h"

namespace weft {
namespace {

using ::testing::SizeIs;

constexpr int64_t kBytes = kHeldPartBytes + 1000;

Tensor Image(int seed) {
  Tensor image = *Tensor::Allocate(DType::kUint8, Shape({kBytes}));
  auto* const bytes = static_cast<unsigned char*>(image.raw_data());
  for (int64_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + seed);
  return image;
}

HeldSnapshot About(const SnapshotKey& key, const Tensor& image) {
  return {key, true, kBytes,
          Checksum({static_cast<const std::byte*>(image.raw_data()), image.bytes()})};
}

TEST(HeldSnapshotsTest, PartsMakeTheImageUp) {
  HeldSnapshots held;
  EXPECT_TRUE(held.empty());
  const Tensor image = Image(1);
  const SnapshotKey key = {7, 2, 40};
  held.Hold(About(key, image), image);
  const auto first = held.Read(key, 0, kHeldPartBytes);
  const auto second = held.Read(key, kHeldPartBytes, 1000);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  const std::string whole = first->bytes + second->bytes;
  EXPECT_EQ(std::memcmp(whole.data(), image.raw_data(), whole.size()), 0);
  EXPECT_TRUE(absl::IsOutOfRange(held.Read(key, 0, kHeldPartBytes + 1).status()));
  EXPECT_TRUE(absl::IsOutOfRange(held.Read(key, kBytes, 1).status()));
  EXPECT_TRUE(absl::IsOutOfRange(held.Read(key, -1, 1).status()));
  EXPECT_TRUE(absl::IsOutOfRange(held.Read(key, 1, -1).status()));
  EXPECT_TRUE(absl::IsNotFound(held.Read({7, 2, 41}, 0, 1).status()));
  EXPECT_TRUE(absl::IsNotFound(held.Read({8, 2, 40}, 0, 1).status()));
}

TEST(HeldSnapshotsTest, AChangedBitIsFound) {
  HeldSnapshots held;
  const Tensor image = Image(1);
  held.Hold(About({7, 2, 40}, image), image);
  ASSERT_THAT(held.State(/*verify=*/true).snapshots, SizeIs(1));
  EXPECT_TRUE(held.State(/*verify=*/true).snapshots[0].is_whole);
  static_cast<unsigned char*>(image.raw_data())[kBytes - 1] ^= 1;
  EXPECT_FALSE(held.State(/*verify=*/true).snapshots[0].is_whole);
  EXPECT_TRUE(held.State(/*verify=*/false).snapshots[0].is_whole) << "nobody has looked";
}

TEST(HeldSnapshotsTest, WhatIsForgottenIsGone) {
  HeldSnapshots held;
  const Tensor image = Image(1);
  for (const SnapshotKey& key : {SnapshotKey{7, 0, 5}, {7, 1, 5}, {8, 0, 5}, {8, 0, 6}}) {
    held.Hold(About(key, image), image);
  }
  held.Forget({7, 1, 5});
  held.Forget({7, 9, 5});
  EXPECT_THAT(held.State(false).snapshots, SizeIs(3));
  held.KeepOnly(8);
  const HeldState state = held.State(false);
  ASSERT_THAT(state.snapshots, SizeIs(2));
  EXPECT_EQ(state.snapshots[0].key, (SnapshotKey{8, 0, 5}));
  EXPECT_EQ(state.snapshots[1].key, (SnapshotKey{8, 0, 6}));
  held.KeepOnly(0);
  EXPECT_TRUE(held.empty());
}

}  // namespace
}  // namespace weft
