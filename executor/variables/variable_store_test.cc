#include "executor/variables/variable_store.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/cpu_device.h"
#include "tensor/testing/lazy_device.h"
#include "tensor/testing/test_device.h"
#include "tensor/testing/watched_device.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

VariableShard Whole(const std::string& name, const Shape& shape) {
  VariableShard shard;
  shard.name = name;
  shard.dtype = DType::kFloat32;
  shard.global_shape = shard.local_shape = shape;
  return shard;
}

VariableShard ShardOf(const Shape& global, const AxisSharding& sharding, int shards, int index) {
  VariableShard shard = Whole("w", global);
  shard.tensor_sharding = sharding;
  shard.tensor_shards = shards;
  shard.tensor_index = index;
  shard.local_shape = sharding.LocalShape(global, shards, index);
  return shard;
}

// Element i is i.
Tensor Counting(const Shape& shape) {
  std::vector<float> values(shape.num_elements());
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::Of<float>(shape, values);
}

// Does shard `index` own position `i` of a dimension seen as blocks x rest?
bool Owns(const AxisSharding& sharding, int64_t size, int shards, int index, int64_t i) {
  const int64_t rest = size / sharding.blocks;
  int64_t first = 0;
  for (int s = 0; s < shards; ++s) {
    const int64_t count = rest / shards + (s < rest % shards ? 1 : 0);
    if (s == index) return i % rest >= first && i % rest < first + count;
    first += count;
  }
  return false;
}

// The shard's elements in order, found one by one.
std::vector<float> BruteForce(const Tensor& global, const VariableShard& shard) {
  std::vector<float> owned;
  const auto strides = global.shape().Strides();
  const int axis = shard.tensor_sharding.axis;
  const int64_t size = global.shape().dim(axis);
  for (int64_t i = 0; i < global.num_elements(); ++i) {
    if (Owns(shard.tensor_sharding, size, shard.tensor_shards, shard.tensor_index,
             i / strides[axis] % size)) {
      owned.push_back(global.data<float>()[i]);
    }
  }
  return owned;
}

TEST(SliceShardTest, EqualsBruteForceForAxesBlocksAndUnevenSizes) {
  const std::vector<Shape> shapes = {{7}, {6, 5}, {13, 1}, {3, 12, 2}, {2, 3, 5, 7}};
  for (const Shape& shape : shapes) {
    const Tensor global = Counting(shape);
    for (int axis = 0; axis < shape.rank(); ++axis) {
      for (const int64_t blocks : {1, 2, 3}) {
        if (shape.dim(axis) % blocks != 0) continue;
        for (const int shards : {1, 2, 3, 5}) {
          SCOPED_TRACE(shape.ToString() + " axis " + std::to_string(axis) + " blocks " +
                       std::to_string(blocks) + " shards " + std::to_string(shards));
          auto assembled = Tensor::Zeros(DType::kFloat32, shape);
          ASSERT_TRUE(assembled.ok());
          for (int index = 0; index < shards; ++index) {
            const VariableShard shard =
                ShardOf(shape, AxisSharding::Split(axis, blocks), shards, index);
            const auto local = SliceShard(global, shard);
            ASSERT_TRUE(local.ok()) << local.status();
            EXPECT_THAT(local->data<float>(),
                        ::testing::ElementsAreArray(BruteForce(global, shard)));
            ASSERT_TRUE(AssembleShard(*local, shard, *assembled).ok());
          }
          EXPECT_TRUE(BitwiseEqual(*assembled, global));
        }
      }
    }
  }
}

// Rows over replicas of a shard along the tensor axis are a shard of a shard.
TEST(SliceShardTest, RowsOfEveryTensorShardMakeTheWhole) {
  const Tensor global = Counting({6, 5, 2});
  for (const AxisSharding& sharding : {AxisSharding::Replicated(), AxisSharding::Split(0),
                                       AxisSharding::Split(0, 2), AxisSharding::Split(1)}) {
    for (const int replicas : {2, 3}) {
      SCOPED_TRACE(sharding.ToString() + " " + std::to_string(replicas));
      auto assembled = Tensor::Zeros(DType::kFloat32, global.shape());
      ASSERT_TRUE(assembled.ok());
      for (int part = 0; part < 2 * replicas; ++part) {
        VariableShard shard = Whole("w", global.shape());
        shard.tensor_sharding = sharding;
        shard.tensor_shards = 2;
        shard.tensor_index = part % 2;
        const Shape of_shard =
            sharding.is_split() ? sharding.LocalShape(global.shape(), 2, part % 2) : global.shape();
        shard.local_shape = of_shard;
        const auto tensor_shard = SliceShard(global, shard);
        ASSERT_TRUE(tensor_shard.ok()) << tensor_shard.status();
        shard.data_shards = replicas;
        shard.data_index = part / 2;
        shard.local_shape = AxisSharding::Split(0).LocalShape(of_shard, replicas, shard.data_index);
        const auto local = SliceShard(global, shard);
        ASSERT_TRUE(local.ok()) << local.status();
        const auto rows = AxisSharding::ShardRange(of_shard.dim(0), replicas, shard.data_index);
        EXPECT_TRUE(BitwiseEqual(*local, tensor_shard->Rows(rows.first, rows.first + rows.count)));
        ASSERT_TRUE(AssembleShard(*local, shard, *assembled).ok());
      }
      EXPECT_TRUE(BitwiseEqual(*assembled, global));
    }
  }
}

TEST(SliceShardTest, RowsThatAreNotOnesOwnAreRefused) {
  VariableShard shard = Whole("w", {6, 2});
  shard.data_shards = 4;
  shard.local_shape = {1, 2};
  EXPECT_EQ(Message(SliceShard(Counting({6, 2}), shard).status()),
            "variable 'w': shard 0 of 1 of [6,2] has shape [1,2], expected [2,2]");
  shard.data_index = 4;
  EXPECT_EQ(Message(SliceShard(Counting({6, 2}), shard).status()),
            "variable 'w': part 4 of 4 of the rows of [6,2]");
}

TEST(SliceShardTest, AReplicatedVariableIsWhole) {
  VariableShard shard = Whole("w", {2, 2});
  shard.tensor_shards = 3;
  shard.tensor_index = 2;
  const auto local = SliceShard(Counting({2, 2}), shard);
  ASSERT_TRUE(local.ok()) << local.status();
  EXPECT_TRUE(BitwiseEqual(*local, Counting({2, 2})));
}

TEST(SliceShardTest, ATensorOfAnotherShapeIsRefused) {
  const auto local = SliceShard(Counting({3, 2}), Whole("fc.weight", {2, 3}));
  EXPECT_EQ(local.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(local.status()), "variable 'fc.weight' is float32[2,3], got float32[3,2]");
}

TEST(SliceShardTest, AShardThatIsNotOneIsRefused) {
  VariableShard shard = ShardOf({6, 2}, AxisSharding::Split(0), 2, 0);
  shard.local_shape = {5, 2};
  EXPECT_EQ(Message(SliceShard(Counting({6, 2}), shard).status()),
            "variable 'w': shard 0 of 2 of [6,2] has shape [5,2], expected [3,2]");
  shard = ShardOf({6, 2}, AxisSharding::Split(0), 2, 0);
  shard.tensor_index = 2;
  EXPECT_EQ(SliceShard(Counting({6, 2}), shard).status().code(),
            absl::StatusCode::kInvalidArgument);
  shard = ShardOf({6, 2}, AxisSharding::Split(0), 2, 0);
  shard.tensor_sharding = AxisSharding::Split(4);
  EXPECT_EQ(SliceShard(Counting({6, 2}), shard).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(AssembleShardTest, ATargetOfAnotherShapeIsRefused) {
  Tensor global = Counting({2, 2});
  const VariableShard shard = ShardOf({6, 2}, AxisSharding::Split(0), 2, 1);
  const absl::Status status = AssembleShard(Counting({3, 2}), shard, global);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status), "variable 'w' is float32[6,2], got float32[2,2]");
}

class VariableStoreTest : public ::testing::TestWithParam<int> {
 protected:
  const std::unique_ptr<Device> device_ = testing::NewTestDevice(GetParam());
};

INSTANTIATE_TEST_SUITE_P(CpuAndFake, VariableStoreTest, ::testing::Values(-1, 0, 1, 2, 3),
                         [](const auto& info) { return testing::TestDeviceName(info.param); });

TEST_P(VariableStoreTest, VariablesStartAsZerosAndKeepWhatIsWritten) {
  VariableStore store(*device_);
  ASSERT_TRUE(store.Add({Whole("b", {2}), Whole("a", {3})}).ok());
  EXPECT_THAT(store.names(), ElementsAre("a", "b"));
  EXPECT_EQ(store.bytes(), 128);  // each rounded up to 64
  EXPECT_THAT(store.Read("a")->data<float>(), ElementsAre(0, 0, 0));
  ASSERT_TRUE(store.Write("a", Counting({3})).ok());
  EXPECT_THAT(store.Read("a")->data<float>(), ElementsAre(0, 1, 2));
  EXPECT_THAT(store.Read("b")->data<float>(), ElementsAre(0, 0));
}

TEST_P(VariableStoreTest, AddingAgainKeepsValueAndPlace) {
  VariableStore store(*device_);
  ASSERT_TRUE(store.Add({Whole("w", {2})}).ok());
  ASSERT_TRUE(store.Write("w", Counting({2})).ok());
  void* const before = *store.DevicePointer("w");
  ASSERT_TRUE(store.Add({Whole("v", {1000}), Whole("w", {2})}).ok());
  EXPECT_EQ(*store.DevicePointer("w"), before);
  EXPECT_THAT(store.Read("w")->data<float>(), ElementsAre(0, 1));
}

TEST_P(VariableStoreTest, AddingWithAnotherShapeIsRefused) {
  VariableStore store(*device_);
  ASSERT_TRUE(store.Add({Whole("w", {2})}).ok());
  const absl::Status status = store.Add({Whole("w", {3})});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status),
              HasSubstr("variable 'w' is float32[3] on this rank, got float32[2]"));
}

TEST_P(VariableStoreTest, WritingAnotherShapeOrTypeIsRefused) {
  VariableStore store(*device_);
  ASSERT_TRUE(store.Add({Whole("w", {2})}).ok());
  EXPECT_EQ(store.Write("w", Counting({1, 2})).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store.Write("w", Tensor::Of<double>({2}, {1, 2})).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(store.Read("w")->data<float>(), ElementsAre(0, 0));
}

TEST_P(VariableStoreTest, AnUnknownVariableIsNamed) {
  VariableStore store(*device_);
  EXPECT_EQ(store.Read("w").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Message(store.Write("w", Counting({2}))), "no variable 'w' on this rank");
  EXPECT_EQ(store.DevicePointer("w").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store.Find("w"), nullptr);
}

TEST_P(VariableStoreTest, TakesMemoryWhenAVariableIsFirstUsed) {
  VariableStore store(*device_);
  ASSERT_TRUE(store.Add({Whole("w", {4, 5}), Whole("b", {100})}).ok());
  EXPECT_EQ(store.bytes(), 128 + 448);  // rounded up to 64
  EXPECT_EQ(store.allocated_bytes(), 0);
  EXPECT_EQ(device_->bytes_in_use(), 0u);
  ASSERT_TRUE(store.Write("w", Counting({4, 5})).ok());
  EXPECT_EQ(store.allocated_bytes(), 128);
  const auto zeros = store.Read("b");
  ASSERT_TRUE(zeros.ok()) << zeros.status();
  EXPECT_THAT(zeros->data<float>(), ::testing::Each(0.f));
  EXPECT_EQ(store.allocated_bytes(), store.bytes());
}

TEST_P(VariableStoreTest, IsWrittenAndReadInParts) {
  VariableStore store(*device_);
  ASSERT_TRUE(store.Add({Whole("w", {4, 5})}).ok());
  const Tensor values = Counting({4, 5});
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(values.raw_data()), 80);
  ASSERT_TRUE(store.WritePart("w", 32, bytes.subspan(32)).ok());
  ASSERT_TRUE(store.WritePart("w", 0, bytes.first(32)).ok());
  EXPECT_TRUE(BitwiseEqual(*store.Read("w"), values));
  std::byte part[8];
  ASSERT_TRUE(store.ReadPart("w", 72, part).ok());
  EXPECT_EQ(std::memcmp(part, bytes.data() + 72, 8), 0);
  EXPECT_EQ(Message(store.ReadPart("w", 76, part)),
            "variable 'w' has 80 bytes on this rank, asked for 8 at 76");
  EXPECT_FALSE(store.WritePart("w", 1, bytes).ok());
  EXPECT_FALSE(store.ReadPart("w", -1, part).ok());
}

TEST_P(VariableStoreTest, AVariableWithoutElementsHasAnAddress) {
  VariableStore store(*device_);
  ASSERT_TRUE(store.Add({Whole("w", {0, 3})}).ok());
  EXPECT_NE(*store.DevicePointer("w"), nullptr);
  EXPECT_EQ(store.Read("w")->num_elements(), 0);
}

// Whatever copy it is that the device does not end in time: zeros for a new variable, a write, a
// read.
TEST(VariableStoreOnAHangingDeviceTest, NoMemoryGoesBackBeforeItsCopiesAreMade) {
  constexpr int kCopies = 4;
  for (int64_t waits = 0; waits <= kCopies; ++waits) {
    SCOPED_TRACE(waits);
    testing::LazyDevice lazy;
    testing::WatchedDevice device(lazy);
    device.HangAfter(waits);
    {
      VariableStore store(device);
      ASSERT_TRUE(store.Add({Whole("a", {3}), Whole("b", {2})}).ok());
      EXPECT_EQ(store.DevicePointer("a").ok(), waits > 0);
      if (waits > 0) {
        EXPECT_EQ(store.DevicePointer("b").ok(), waits > 1);
      }
      if (waits > 1) {
        // The host's side of the copy goes when this is over.
        const auto memory = device.AllocateHostMemory(3 * sizeof(float));
        ASSERT_TRUE(memory.ok());
        const Tensor staged(DType::kFloat32, Shape({3}), *memory);
        EXPECT_EQ(store.Write("a", staged).ok(), waits > 2);
      }
      if (waits > 2) {
        const auto memory = device.AllocateHostMemory(2 * sizeof(float));
        ASSERT_TRUE(memory.ok());
        const std::span<std::byte> part(static_cast<std::byte*>((*memory)->data()),
                                        2 * sizeof(float));
        EXPECT_EQ(store.ReadPart("b", 0, part).ok(), waits > 3);
      }
    }
    const absl::Status status = lazy.Verify();
    EXPECT_TRUE(status.ok()) << status;
  }
}

// What was under way is over then, and the next copy has a stream of its own.
TEST(VariableStoreOnAHangingDeviceTest, AVariableIsReadAfterACopyThatTookTooLong) {
  testing::LazyDevice lazy;
  testing::WatchedDevice device(lazy);
  VariableStore store(device);
  ASSERT_TRUE(store.Add({Whole("a", {3})}).ok());
  ASSERT_TRUE(store.Write("a", Counting({3})).ok());
  device.HangAfter(0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(store.Write("a", Tensor::Of<float>({3}, {7, 8, 9}))));
  EXPECT_TRUE(absl::IsDeadlineExceeded(store.Read("a").status()));
  device.NeverHang();
  EXPECT_THAT(store.Read("a")->data<float>(), ElementsAre(7, 8, 9));
}

}  // namespace
}  // namespace weft
