// An image says what lies in it, wherever it is read, and a reader that nobody trusts finds damage.
#include "executor/variables/snapshot_image.h"

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

VariableShard Whole(const std::string& name, Shape shape) {
  VariableShard shard;
  shard.name = name;
  shard.dtype = DType::kFloat32;
  shard.global_shape = shard.local_shape = std::move(shape);
  shard.is_primary = true;
  return shard;
}

// Rows 4 to 7 of [8,3] are shard 1 of 2, of which part 3 of 4 is row 7.
VariableShard Cut() {
  VariableShard shard = Whole("w/\"größe\"", Shape({8, 3}));
  shard.tensor_sharding = AxisSharding::Split(0);
  shard.tensor_shards = 2;
  shard.tensor_index = 1;
  shard.data_shards = 4;
  shard.data_index = 3;
  shard.local_shape = Shape({1, 3});
  shard.slot_of = "w";
  shard.trainable = true;
  return shard;
}

std::vector<std::byte> HeaderOf(const SnapshotLayout& layout) {
  std::vector<std::byte> bytes(layout.header.size());
  std::memcpy(bytes.data(), layout.header.data(), bytes.size());
  return bytes;
}

TEST(SnapshotImageTest, IsReadAsItWasLaidOut) {
  const SnapshotLayout layout =
      LayOutSnapshot({Cut(), Whole("a", Shape({5})), Whole("s", Shape())});
  ASSERT_THAT(layout.entries, SizeIs(3));
  const auto read = ParseSnapshot(HeaderOf(layout), layout.bytes, "image");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->bytes, layout.bytes);
  ASSERT_THAT(read->entries, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read->entries[i].offset, layout.entries[i].offset);
    EXPECT_EQ(read->entries[i].offset % 64, 0);
    EXPECT_EQ(read->entries[i].shard.local_shape, layout.entries[i].shard.local_shape);
  }
  EXPECT_EQ(read->entries[0].shard.name, "a");
  const VariableShard& cut = read->entries[2].shard;
  EXPECT_EQ(cut.name, Cut().name);
  EXPECT_EQ(cut.dtype, DType::kFloat32);
  EXPECT_EQ(cut.global_shape, Shape({8, 3}));
  EXPECT_EQ(cut.tensor_sharding, AxisSharding::Split(0));
  EXPECT_EQ(cut.tensor_shards, 2);
  EXPECT_EQ(cut.tensor_index, 1);
  EXPECT_EQ(cut.data_shards, 4);
  EXPECT_EQ(cut.data_index, 3);
  EXPECT_EQ(cut.slot_of, "w");
  EXPECT_TRUE(cut.trainable);
  EXPECT_EQ(layout.bytes, layout.entries[2].offset + 12);
}

TEST(SnapshotImageTest, TheOrderOfTheVariablesDoesNotMatter) {
  EXPECT_EQ(LayOutSnapshot({Whole("a", Shape({5})), Cut()}).header,
            LayOutSnapshot({Cut(), Whole("a", Shape({5}))}).header);
}

TEST(SnapshotImageTest, OneOfNothingIsOne) {
  const SnapshotLayout layout = LayOutSnapshot({});
  EXPECT_GT(layout.bytes, 0);
  const auto read = ParseSnapshot(HeaderOf(layout), layout.bytes, "image");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->entries, SizeIs(0));
}

TEST(SnapshotImageTest, DamageIsRefused) {
  const SnapshotLayout layout = LayOutSnapshot({Cut(), Whole("a", Shape({5}))});
  const std::vector<std::byte> header = HeaderOf(layout);
  const auto refusal = [&](const std::vector<std::byte>& bytes, int64_t image_bytes) {
    const absl::Status status = ParseSnapshot(bytes, image_bytes, "image").status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({}, 0), HasSubstr("no header"));
  EXPECT_THAT(refusal(header, layout.bytes + 1), HasSubstr("its variables end at byte"));
  EXPECT_THAT(refusal(header, layout.bytes - 1), HasSubstr("its variables end at byte"));
  EXPECT_THAT(refusal(header, 32), HasSubstr("its header is said to have"));
  std::vector<std::byte> longer = header;
  longer[3] = std::byte{0x7f};
  EXPECT_THAT(refusal(longer, layout.bytes), HasSubstr("its header is said to have"));
  std::vector<std::byte> shorter(header.begin(), header.end() - 1);
  EXPECT_THAT(refusal(shorter, layout.bytes), HasSubstr("are here"));
  const auto with = [&](const std::string& from, const std::string& to) {
    SnapshotLayout changed = layout;
    const size_t at = changed.header.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    EXPECT_EQ(from.size(), to.size());
    changed.header.replace(at, from.size(), to);
    return refusal(HeaderOf(changed), layout.bytes);
  };
  EXPECT_THAT(with("\"row_shard\":3", "\"row_shard\":4"), HasSubstr("its shape does not allow"));
  EXPECT_THAT(with("\"S(0)\"", "\"S(7)\""), HasSubstr("its shape does not allow"));
  EXPECT_THAT(with("\"float32\"", "\"float99\""), HasSubstr("type unknown"));
  EXPECT_THAT(with("[5]", "[-]"), HasSubstr("is no list"));
  EXPECT_THAT(with("[5]", "[{]"), HasSubstr("lists in each other"));
}

// Any flipped bit of the header is refused, or changes what the image says: it never crashes.
TEST(SnapshotImageTest, FlippedBitsDoNoHarm) {
  const SnapshotLayout layout = LayOutSnapshot({Cut(), Whole("a", Shape({5}))});
  for (size_t bit = 0; bit < 8 * layout.header.size(); ++bit) {
    std::vector<std::byte> header = HeaderOf(layout);
    header[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    const auto read = ParseSnapshot(header, layout.bytes, "image");
    if (!read.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(read.status())) << read.status();
      continue;
    }
    for (const SnapshotEntry& entry : read->entries) {
      EXPECT_GE(entry.offset, 0);
      EXPECT_LE(entry.offset + entry.bytes(), layout.bytes);
    }
  }
}

TEST(SnapshotImageTest, ACutHasTheShapeOfItsRows) {
  EXPECT_EQ(*ShapeOfCut(Cut()), Shape({1, 3}));
  EXPECT_EQ(*ShapeOfCut(Whole("a", Shape({5}))), Shape({5}));
  VariableShard scalar = Whole("s", Shape());
  scalar.data_shards = 2;
  EXPECT_TRUE(absl::IsInvalidArgument(ShapeOfCut(scalar).status()));
  VariableShard beyond = Cut();
  beyond.data_index = 4;
  EXPECT_TRUE(absl::IsInvalidArgument(ShapeOfCut(beyond).status()));
}

}  // namespace
}  // namespace weft
