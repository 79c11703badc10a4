#include "distributed/grpc/partition_files.h"

#include <google/protobuf/descriptor.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "distributed/grpc/partition.pb.h"
#include "distributed/grpc/partition_wire.h"
#include "distributed/testing/sum_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/graph_wire.h"
#include "onnx_import/testing/mutate.h"
#include "platform/testing/fake_file_system.h"
#include "tensor/dtype.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kText[] = "/p/partition.textproto";

class PartitionFilesTest : public ::testing::Test {
 protected:
  void Write(const Partition& partition) {
    const auto written = WritePartitionFiles(files_, "/p", partition);
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(static_cast<size_t>(*written), files_.ListDirectory("/p").value().size());
  }
  std::string Text() { return files_.ReadFile(kText).value(); }
  void Replace(const std::string& old_text, const std::string& new_text) {
    const std::string text = Text();
    ASSERT_THAT(text, HasSubstr(old_text));
    ASSERT_TRUE(
        files_.WriteFileAtomically(kText, absl::StrReplaceAll(text, {{old_text, new_text}})).ok());
  }
  // What reading says after an edit of the text.
  std::string ErrorAfter(const std::string& old_text, const std::string& new_text) {
    Write(testing::PartitionWithEveryField());
    Replace(old_text, new_text);
    const auto partition = ReadPartitionFiles(files_, "/p");
    EXPECT_FALSE(partition.ok());
    return std::string(partition.status().message());
  }

  testing::FakeFileSystem files_;
};

TEST_F(PartitionFilesTest, ComesBackTheSame) {
  const Partition partition = testing::PartitionWithEveryField();
  Write(partition);
  const auto back = ReadPartitionFiles(files_, "/p");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*EncodePartition(*back), *EncodePartition(partition));
  EXPECT_EQ(back->end.DebugString(), partition.end.DebugString());
  EXPECT_EQ(back->channels[0].value, partition.channels[0].value);
}

TEST_F(PartitionFilesTest, SaysAnEntryALineWithNamesForNumbers) {
  Write(testing::PartitionWithEveryField());
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("\nrank: 1\nmesh_data: 4\nmesh_tensor: 2\nmesh_pipeline: 1\n"));
  EXPECT_THAT(text, HasSubstr("\nmicro: \"micro-0.onnx\"\nend: \"end.onnx\"\n"));
  EXPECT_THAT(text, HasSubstr("\nactions { kind: forward micro_batch: "));
  EXPECT_THAT(text, HasSubstr("\nchannels { id: 9 from: 1 to: 3 value: \"the \\\"größe\\\"\\n\" "
                              "dtype: bool shape: [] per_micro_batch: false }\n"));
  EXPECT_THAT(text, HasSubstr("global_shape: [8, 3]"));
  EXPECT_THAT(text, HasSubstr("tensor_sharding { kind: split axis: 0 blocks: 1 }"));
}

TEST_F(PartitionFilesTest, AnEditIsRead) {
  Write(testing::PartitionWithEveryField());
  Replace("threads: 3", "threads: 5");
  EXPECT_EQ(ReadPartitionFiles(files_, "/p")->threads, 5);
}

TEST_F(PartitionFilesTest, GraphsAreTheFilesThemselves) {
  Partition partition = testing::PartitionWithEveryField();
  Write(partition);
  partition.end.AddConstant("added", Tensor::Of<float>(Shape{2}, {1.5f, -2}));
  const std::string edited = GraphToOnnx(partition.end, {.weights = false}).value();
  ASSERT_TRUE(files_.WriteFileAtomically("/p/end.onnx", edited).ok());
  const auto back = ReadPartitionFiles(files_, "/p");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*EncodePartition(*back), *EncodePartition(partition));
}

// The names in the text are those of messages.
TEST_F(PartitionFilesTest, ElementTypesHaveTheirOwnNames) {
  const auto& names = *rpc::ElementType::Name_descriptor();
  ASSERT_EQ(names.value_count(), kDTypeCount);
  for (int number = 1; number < kDTypeCount; ++number) {
    EXPECT_EQ(names.FindValueByNumber(number)->name(), DTypeName(static_cast<DType>(number)));
  }
}

TEST_F(PartitionFilesTest, WrongTextIsNamedWithItsPlace) {
  EXPECT_THAT(ErrorAfter("strict: true", "strict: perhaps"),
              AllOf(HasSubstr("/p/partition.textproto:"), HasSubstr("perhaps")));
  EXPECT_THAT(ErrorAfter("strict: true", "strickt: true"), HasSubstr("strickt"));
  EXPECT_THAT(ErrorAfter("dtype: bool", "dtype: boole"), HasSubstr("boole"));
}

TEST_F(PartitionFilesTest, ImpossibleFieldsAreRefusedAsOfBytes) {
  EXPECT_THAT(ErrorAfter("\nrank: 1\n", "\nrank: 8\n"),
              AllOf(HasSubstr(kText), HasSubstr("rank 8 of a mesh of 4 x 2 x 1")));
  EXPECT_THAT(ErrorAfter("dtype: bool", "dtype: 77"), HasSubstr("element type number 77"));
  EXPECT_THAT(ErrorAfter("to: 3", "to: 30"), HasSubstr("from rank 1 to 30 of 8"));
  EXPECT_THAT(ErrorAfter("tensor_shards: 2", "tensor_shards: 0"),
              HasSubstr("has an impossible sharding"));
}

TEST_F(PartitionFilesTest, PartsThatDoNotFitAreRefusedByTheirFolder) {
  EXPECT_THAT(ErrorAfter("samples: 1 ", "samples: 7 "), HasSubstr("/p: law "));
  EXPECT_THAT(ErrorAfter("guard: \"loss\"", "guard: \"gain\""), HasSubstr("/p: law 10"));
}

TEST_F(PartitionFilesTest, GraphsLieBesideTheText) {
  EXPECT_THAT(ErrorAfter("\"end.onnx\"", "\"../end.onnx\""),
              HasSubstr("end is '../end.onnx'; expected the name of a file beside it"));
  EXPECT_THAT(ErrorAfter("\"end.onnx\"", "\"micro-0.onnx\""),
              HasSubstr("end names 'micro-0.onnx', which another field names, too"));
  EXPECT_THAT(ErrorAfter("\"end.onnx\"", "\"none.onnx\""), HasSubstr("none.onnx"));
}

TEST_F(PartitionFilesTest, ADamagedGraphIsNamed) {
  Write(testing::PartitionWithEveryField());
  const std::string bytes = files_.ReadFile("/p/end.onnx").value();
  ASSERT_TRUE(files_.WriteFileAtomically("/p/end.onnx", bytes.substr(0, bytes.size() / 2)).ok());
  const auto partition = ReadPartitionFiles(files_, "/p");
  EXPECT_EQ(partition.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(partition.status().message()), HasSubstr("/p/end.onnx: "));
}

// Run it under asan, too.
TEST_F(PartitionFilesTest, ThousandsOfDamagedFilesNeverCrash) {
  Write(testing::PartitionWithEveryField());
  std::mt19937 random(20261124);
  int read = 0;
  int refused = 0;
  const std::vector<std::string> names = files_.ListDirectory("/p").value();
  for (const std::string& name : names) {
    const std::string path = absl::StrCat("/p/", name);
    const std::string whole = files_.ReadFile(path).value();
    for (int round = 0; round < 700; ++round) {
      ASSERT_TRUE(files_.WriteFileAtomically(path, testing::MutateBytes(whole, random)).ok());
      const auto partition = ReadPartitionFiles(files_, "/p");
      ++(partition.ok() ? read : refused);
      if (partition.ok()) EncodePartition(*partition).status().IgnoreError();
    }
    ASSERT_TRUE(files_.WriteFileAtomically(path, whole).ok());
  }
  // Damage that is always read, or never, would test nothing.
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace weft
