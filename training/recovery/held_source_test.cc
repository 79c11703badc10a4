// A state is put together from what workers hold of it: the newest one that is whole, and no bit
// that has changed.
#include "training/recovery/held_source.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/recovery/held_snapshots.h"
#include "executor/variables/snapshot_image.h"
#include "executor/variables/variable_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/checksum.h"
#include "tensor/device.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A worker that answers what it holds, and nothing else.
class Holder final : public WorkerClient {
 public:
  explicit Holder(std::string name) : name_(std::move(name)) {}
  HeldSnapshots held;
  bool is_lost = false;
  bool gives_less = false;

  std::string name() const override { return name_; }
  absl::StatusOr<WorkerInfo> Join(const JobMembership&) override { return Nothing(); }
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string&, const Partition&,
                                               const std::string&) override {
    return Nothing();
  }
  absl::Status WriteVariable(const std::string&, const Tensor&) override { return Nothing(); }
  absl::StatusOr<Tensor> ReadVariable(const std::string&) override { return Nothing(); }
  absl::Status RunSteps(const std::vector<StepRange>&,
                        const std::function<void(const StepReport&)>&) override {
    return Nothing();
  }
  absl::StatusOr<ControlReply> Answer(const ControlRequest& request) override {
    if (is_lost) return absl::UnavailableError("it was lost");
    if (const auto* state = std::get_if<HeldStateRequest>(&request)) {
      return ControlReply(held.State(state->verify));
    }
    const auto* const read = std::get_if<ReadHeldRequest>(&request);
    if (read == nullptr) return Nothing();
    auto part = held.Read(read->key, read->offset, read->bytes);
    if (!part.ok()) return part.status();
    if (gives_less && part->bytes.size() > 1) part->bytes.pop_back();
    return ControlReply(*std::move(part));
  }
  void Abort(const absl::Status&) override {}

 private:
  static absl::Status Nothing() { return absl::UnimplementedError("it only holds"); }

  const std::string name_;
};

// Variables v [7,5] and w [6,4], as ranks have them after some step.
class HeldSourceTest : public ::testing::Test {
 protected:
  static Tensor ValueOf(const std::string& name, int64_t step) {
    const Shape shape = name == "v" ? Shape({7, 5}) : Shape({6, 4});
    return testing::RandomTensor(shape, static_cast<unsigned>(step * 10 + (name == "v" ? 1 : 2)));
  }
  // Rows of `name`: part `index` of `count`.
  static VariableShard Rows(const std::string& name, int count, int index) {
    VariableShard shard;
    shard.name = name;
    shard.dtype = DType::kFloat32;
    shard.global_shape = ValueOf(name, 0).shape();
    shard.data_shards = count;
    shard.data_index = index;
    shard.local_shape = *ShapeOfCut(shard);
    return shard;
  }
  // Columns, as tensor parallelism splits them.
  static VariableShard Columns(const std::string& name, int count, int index) {
    VariableShard shard = Rows(name, 1, 0);
    shard.tensor_sharding = AxisSharding::Split(1);
    shard.tensor_shards = count;
    shard.tensor_index = index;
    shard.local_shape = *ShapeOfCut(shard);
    return shard;
  }
  // The image of these parts; the holder has it under the key.
  static Tensor Hold(Holder& holder, const SnapshotKey& key,
                     const std::vector<VariableShard>& shards) {
    VariableStore variables(CpuDevice());
    EXPECT_TRUE(variables.Add(shards).ok());
    for (const VariableShard& shard : shards) {
      const auto local = SliceShard(ValueOf(shard.name, key.step), shard);
      EXPECT_TRUE(local.ok()) << local.status();
      EXPECT_TRUE(variables.Write(shard.name, *local).ok());
    }
    const SnapshotLayout layout = LayOutSnapshot(shards);
    Tensor image = *Tensor::Allocate(DType::kUint8, Shape({layout.bytes}));
    EXPECT_TRUE(FillSnapshot(variables, layout, image).ok());
    const uint64_t checksum =
        Checksum({static_cast<const std::byte*>(image.raw_data()), image.bytes()});
    holder.held.Hold({key, true, layout.bytes, checksum}, image);
    return image;
  }
  absl::StatusOr<HeldSource> Find(uint64_t job_id = 0) {
    return HeldSource::FindNewest({&a_, &b_, &c_}, {"v", "w"}, job_id, &newest_);
  }
  void ExpectState(const absl::StatusOr<HeldSource>& found, int64_t step) {
    ASSERT_TRUE(found.ok()) << found.status();
    HeldSource source = *found;
    EXPECT_EQ(source.step(), step);
    EXPECT_THAT(source.names(), ElementsAre("v", "w"));
    for (const std::string name : {"v", "w"}) {
      const auto value = source.Read(name);
      ASSERT_TRUE(value.ok()) << value.status();
      EXPECT_TRUE(BitwiseEqual(*value, ValueOf(name, step))) << name;
    }
    EXPECT_TRUE(absl::IsNotFound(source.Read("x").status()));
  }

  Holder a_{"worker:0"}, b_{"worker:1"}, c_{"worker:2"};
  int64_t newest_ = 0;
};

TEST_F(HeldSourceTest, PartsOfAnyCutMakeAVariableUp) {
  Hold(a_, {7, 0, 5}, {Rows("v", 3, 0), Columns("w", 2, 1)});
  Hold(b_, {7, 1, 5}, {Rows("v", 3, 1), Columns("w", 2, 0)});
  Hold(c_, {7, 2, 5}, {Rows("v", 3, 2)});
  const auto found = Find();
  ExpectState(found, 5);
  EXPECT_EQ(found->text(), "copies in the memory of 3 workers");
  EXPECT_EQ(found->job_id(), 7u);
  EXPECT_EQ(newest_, 5);
}

TEST_F(HeldSourceTest, TheNewestThatIsWhole) {
  for (const int64_t step : {4, 6}) {
    Hold(a_, {7, 0, step}, {Rows("v", 2, 0), Rows("w", 2, 0)});
    Hold(b_, {7, 1, step}, {Rows("v", 2, 1), Rows("w", 2, 1)});
  }
  ExpectState(Find(), 6);
  // Of this one a part is nowhere.
  Hold(a_, {7, 0, 8}, {Rows("v", 2, 0), Rows("w", 2, 0)});
  ExpectState(Find(), 6);
  EXPECT_EQ(newest_, 8);
  // The keeper has the lost one's part.
  b_.is_lost = true;
  EXPECT_TRUE(absl::IsNotFound(Find().status()));
  Hold(c_, {7, 1, 4}, {Rows("v", 2, 1), Rows("w", 2, 1)});
  ExpectState(Find(), 4);
}

TEST_F(HeldSourceTest, StepsAndJobsAreNotMixed) {
  Hold(a_, {7, 0, 5}, {Rows("v", 2, 0), Rows("w", 1, 0)});
  Hold(b_, {7, 1, 6}, {Rows("v", 2, 1)});
  EXPECT_TRUE(absl::IsNotFound(Find().status()));
  Hold(b_, {8, 1, 5}, {Rows("v", 2, 1)});
  EXPECT_TRUE(absl::IsNotFound(Find().status()));
  // Nor are cuts: these rows overlap.
  Hold(c_, {7, 2, 5}, {Rows("v", 3, 2)});
  const absl::Status lacks = Find().status();
  EXPECT_TRUE(absl::IsNotFound(lacks)) << lacks;
  EXPECT_THAT(std::string(lacks.message()), HasSubstr("none is whole"));
  Hold(c_, {8, 0, 9}, {Rows("v", 1, 0), Rows("w", 1, 0)});
  ExpectState(Find(), 9);
  EXPECT_TRUE(absl::IsNotFound(Find(/*job_id=*/7).status()));
  ExpectState(Find(/*job_id=*/8), 9);
}

TEST_F(HeldSourceTest, ADamagedCopyIsNotUsed) {
  Hold(a_, {7, 0, 4}, {Rows("v", 1, 0), Rows("w", 1, 0)});
  const Tensor image = Hold(b_, {7, 0, 6}, {Rows("v", 1, 0), Rows("w", 1, 0)});
  ExpectState(Find(), 6);
  auto* const bytes = static_cast<unsigned char*>(image.raw_data());
  bytes[image.bytes() - 3] ^= 16;
  ExpectState(Find(), 4);
  // Another one has it as it was.
  Hold(c_, {7, 0, 6}, {Rows("v", 1, 0), Rows("w", 1, 0)});
  ExpectState(Find(), 6);
}

// It has the checksum that it is said to have, and is no image.
TEST_F(HeldSourceTest, WhatIsNoImageIsLeftOut) {
  Hold(a_, {7, 0, 4}, {Rows("v", 1, 0), Rows("w", 1, 0)});
  Tensor noise = *Tensor::Allocate(DType::kUint8, Shape({1000}));
  std::memset(noise.raw_data(), 0x5a, noise.bytes());
  const uint64_t checksum =
      Checksum({static_cast<const std::byte*>(noise.raw_data()), noise.bytes()});
  b_.held.Hold({{7, 1, 9}, true, 1000, checksum}, noise);
  ExpectState(Find(), 4);
}

TEST_F(HeldSourceTest, APartComesFromWhoGivesIt) {
  const std::vector<VariableShard> all = {Rows("v", 1, 0), Rows("w", 1, 0)};
  Hold(a_, {7, 0, 6}, all);
  Hold(b_, {7, 0, 6}, all);
  auto found = Find();
  ASSERT_TRUE(found.ok()) << found.status();
  a_.is_lost = true;
  ExpectState(found, 6);
  a_.is_lost = false;
  a_.gives_less = true;
  ExpectState(found, 6);
  b_.is_lost = true;
  EXPECT_TRUE(absl::IsUnavailable(found->Read("v").status()));
}

TEST_F(HeldSourceTest, NobodyHoldsAnything) {
  const absl::Status status = Find().status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("hold no copy"));
  EXPECT_EQ(newest_, -1);
}

}  // namespace
}  // namespace weft
