#include "executor/variables/checkpoint_writer.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph.h"
#include "gtest/gtest.h"
#include "platform/checksum.h"
#include "platform/testing/fake_file_system.h"
#include "tensor/testing/test_device.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using State = CheckpointWrite::State;

VariableShard ShardOf(const std::string& name, DType dtype, const Shape& shape) {
  VariableShard shard;
  shard.name = name;
  shard.dtype = dtype;
  shard.global_shape = shape;
  shard.local_shape = shape;
  shard.is_primary = true;
  return shard;
}

// On each device of tensor/testing/test_device.h.
class CheckpointWriterTest : public ::testing::TestWithParam<int> {
 protected:
  CheckpointWriterTest() : store_(*device_), writer_(files_, RealClock(), store_, RankId(3)) {
    EXPECT_TRUE(files_.CreateDirectories("/c").ok());
    EXPECT_TRUE(
        store_
            .Add({ShardOf("w", DType::kFloat32, Shape({2})), ShardOf("n", DType::kInt64, Shape())})
            .ok());
    Put(1.5f, 7);
  }

  void Put(float w, int64_t n) {
    ASSERT_TRUE(store_.Write("w", Tensor::Of<float>({2}, {w, -w})).ok());
    ASSERT_TRUE(store_.Write("n", Tensor::Scalar<int64_t>(n)).ok());
  }
  // The bytes of a tensor in the file.
  template <typename T>
  T At(const std::string& path, const std::string& name) {
    const std::string file = *files_.ReadFile(path);
    const auto layout = ParseSafetensors(std::as_bytes(std::span(file)), path);
    EXPECT_TRUE(layout.ok()) << layout.status();
    for (const SafetensorsEntry& entry : layout->tensors) {
      if (entry.name != name) continue;
      T value;
      std::memcpy(&value, file.data() + entry.offset, sizeof(T));
      return value;
    }
    ADD_FAILURE() << "no tensor " << name;
    return T();
  }

  const std::unique_ptr<Device> device_ = testing::NewTestDevice(GetParam());
  testing::FakeFileSystem files_;
  VariableStore store_;
  CheckpointWriter writer_;
};

TEST_P(CheckpointWriterTest, WritesTheStateOfTheMomentItWasAsked) {
  ASSERT_TRUE(writer_.Add({"n", "w"}).ok());
  EXPECT_EQ(writer_.Poll(true).state, State::kNone);
  ASSERT_TRUE(writer_.Save("/c").ok());
  Put(99, 99);  // the next step
  const CheckpointWrite write = writer_.Poll(/*wait=*/true);
  EXPECT_EQ(write.state, State::kDone);
  ASSERT_TRUE(write.status.ok()) << write.status;
  EXPECT_EQ(write.file, "rank-00003.safetensors");
  const std::string path = "/c/rank-00003.safetensors";
  EXPECT_EQ(At<float>(path, "w"), 1.5f);
  EXPECT_EQ(At<int64_t>(path, "n"), 7);
  const std::string file = *files_.ReadFile(path);
  EXPECT_EQ(write.bytes, static_cast<int64_t>(file.size()));
  EXPECT_EQ(write.checksum, Checksum(std::as_bytes(std::span(file))));
  const int64_t seven = 7;
  EXPECT_EQ(write.tensors.at("n"), Checksum(std::as_bytes(std::span(&seven, 1))));
}

TEST_P(CheckpointWriterTest, TheNextOneUsesTheSameMemory) {
  ASSERT_TRUE(writer_.Add({"n", "w"}).ok());
  ASSERT_TRUE(files_.CreateDirectories("/d").ok());
  ASSERT_TRUE(writer_.Save("/c").ok());
  Put(2, 8);
  ASSERT_TRUE(writer_.Save("/d").ok());
  EXPECT_EQ(writer_.Poll(true).folder, "/d");
  EXPECT_EQ(At<float>("/c/rank-00003.safetensors", "w"), 1.5f);
  EXPECT_EQ(At<float>("/d/rank-00003.safetensors", "w"), 2.0f);
}

TEST_P(CheckpointWriterTest, AFullDiskIsToldAndTheNextOneIsTried) {
  ASSERT_TRUE(writer_.Add({"w"}).ok());
  files_.InjectError(testing::FakeFileSystem::Operation::kWrite, ENOSPC);
  ASSERT_TRUE(writer_.Save("/c").ok());
  const CheckpointWrite failed = writer_.Poll(true);
  EXPECT_EQ(failed.state, State::kDone);
  EXPECT_EQ(failed.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(files_.Exists("/c/rank-00003.safetensors"));
  ASSERT_TRUE(writer_.Save("/c").ok());
  EXPECT_TRUE(writer_.Poll(true).status.ok());
}

// 0 x -inf once made a weight NaN that the loss did not show; it was saved, with exit code 0.
TEST_P(CheckpointWriterTest, AStateThatIsNotFiniteIsNotSaved) {
  ASSERT_TRUE(writer_.Add({"n", "w"}).ok());
  Put(std::numeric_limits<float>::quiet_NaN(), 7);
  const absl::Status status = writer_.Save("/c");
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("variable 'w' has become nan (element 0)"));
  EXPECT_FALSE(files_.Exists("/c/rank-00003.safetensors"));
  Put(2, 7);
  ASSERT_TRUE(writer_.Save("/c").ok());
  EXPECT_TRUE(writer_.Poll(true).status.ok());
}

TEST_P(CheckpointWriterTest, ARankThatOwnsNothingWritesNoFile) {
  EXPECT_EQ(writer_.bytes(), 0);
  ASSERT_TRUE(writer_.Save("/c").ok());
  const CheckpointWrite write = writer_.Poll(true);
  EXPECT_EQ(write.state, State::kDone);
  EXPECT_TRUE(write.status.ok());
  EXPECT_EQ(write.file, "");
  EXPECT_THAT(*files_.ListDirectory("/c"), ElementsAre());
}

TEST_P(CheckpointWriterTest, UnknownVariablesAreRefused) {
  const absl::Status status = writer_.Add({"x"});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'x'"));
}

// So large that several threads copy it, and that its file goes to the disk past the cache.
class LargeCheckpointTest : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int64_t kElements = (int64_t{5} << 20) + 3;

  void SetUp() override {
    char pattern[] = "/tmp/weft-checkpoint-writer-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    const Shape shape({kElements});
    ASSERT_TRUE(store_
                    .Add({ShardOf("a", DType::kFloat32, shape), ShardOf("b", DType::kInt8, shape),
                          ShardOf("c", DType::kFloat32, shape)})
                    .ok());
    ASSERT_TRUE(writer_.Add({"c", "b", "a"}).ok());
    for (int64_t i = 0; i < kElements; ++i) {
      values_.push_back(static_cast<float>(i % 100003));
      bytes_.push_back(static_cast<int8_t>(i % 101));
    }
    Put();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Put() {
    ASSERT_TRUE(store_.Write("a", Tensor::Of<float>(Shape({kElements}), values_)).ok());
    ASSERT_TRUE(store_.Write("b", Tensor::Of<int8_t>(Shape({kElements}), bytes_)).ok());
    std::vector<float> negative = values_;
    for (float& value : negative) value = -value;
    ASSERT_TRUE(store_.Write("c", Tensor::Of<float>(Shape({kElements}), negative)).ok());
  }

  std::string folder_;
  const std::unique_ptr<Device> device_ = testing::NewTestDevice(GetParam());
  VariableStore store_{*device_};
  CheckpointWriter writer_{RealFileSystem(), RealClock(), store_, RankId(0)};
  std::vector<float> values_;
  std::vector<int8_t> bytes_;
};

TEST_P(LargeCheckpointTest, IsTheStateOfTheMomentByteForByte) {
  for (const float first : {0.5f, 1.5f}) {
    values_[0] = first;
    Put();
    ASSERT_TRUE(writer_.Save(folder_).ok());
    ASSERT_TRUE(store_.WritePart("a", 0, std::vector<std::byte>(100)).ok());  // the next step
    const CheckpointWrite write = writer_.Poll(/*wait=*/true);
    ASSERT_TRUE(write.status.ok()) << write.status;
    const std::string path = folder_ + "/" + write.file;
    const std::string text = *RealFileSystem().ReadFile(path);
    const auto file = std::as_bytes(std::span(text));
    EXPECT_EQ(write.bytes, static_cast<int64_t>(file.size()));
    EXPECT_EQ(write.checksum, Checksum(file));
    const auto layout = ParseSafetensors(file, path);
    ASSERT_TRUE(layout.ok()) << layout.status();
    ASSERT_EQ(layout->tensors.size(), 3u);
    for (const SafetensorsEntry& entry : layout->tensors) {
      const auto part =
          file.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes()));
      EXPECT_EQ(write.tensors.at(entry.name), Checksum(part)) << entry.name;
      if (entry.name == "b") {
        EXPECT_EQ(std::memcmp(part.data(), bytes_.data(), part.size()), 0);
        continue;
      }
      const float sign = entry.name == "a" ? 1 : -1;
      const auto* const stored = reinterpret_cast<const float*>(part.data());
      int64_t other = 0;
      for (int64_t i = 0; i < kElements; ++i) other += stored[i] != sign * values_[i];
      EXPECT_EQ(other, 0) << entry.name;
    }
    std::filesystem::remove(path);
  }
}

TEST_P(LargeCheckpointTest, TheFirstNumberThatIsNotFiniteIsNamed) {
  const float bad = std::numeric_limits<float>::infinity();
  const auto bytes = std::as_bytes(std::span(&bad, 1));
  for (const int64_t element : {kElements - 1, int64_t{3000000}, int64_t{1000001}}) {
    ASSERT_TRUE(store_.WritePart("c", 4 * element, bytes).ok());
    EXPECT_THAT(std::string(writer_.Save(folder_).message()),
                HasSubstr(absl::StrCat("variable 'c' has become inf (element ", element, ")")));
  }
  ASSERT_TRUE(store_.WritePart("a", 4 * (kElements - 1), bytes).ok());
  EXPECT_THAT(std::string(writer_.Save(folder_).message()), HasSubstr("variable 'a'"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

INSTANTIATE_TEST_SUITE_P(Devices, LargeCheckpointTest, ::testing::Values(testing::kOnCpu, 1),
                         [](const auto& info) { return testing::TestDeviceName(info.param); });

INSTANTIATE_TEST_SUITE_P(Devices, CheckpointWriterTest,
                         ::testing::Values(testing::kOnCpu, testing::kLazyOrder, 1),
                         [](const auto& info) { return testing::TestDeviceName(info.param); });

TEST(CheckpointedVariables, AreThoseThatChangeAndAreOursToSave) {
  Partition partition;
  const ValueType type{ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim(2)})};
  const auto add = [&](const std::string& name, bool primary, bool updated) {
    const ValueId value = partition.end.AddVariable(name, type, Tensor(), true);
    if (updated) partition.end.SetVariableUpdate(name, value);
    VariableShard shard = ShardOf(name, DType::kFloat32, Shape({2}));
    shard.is_primary = primary;
    partition.variables.push_back(shard);
  };
  add("frozen", true, false);
  add("ours", true, true);
  add("theirs", false, true);
  EXPECT_THAT(CheckpointedVariables(partition), ElementsAre("ours"));
}

}  // namespace
}  // namespace weft
