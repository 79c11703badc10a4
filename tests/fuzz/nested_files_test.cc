// Each format of text that enters, with a hundred thousand lists or objects in each other: refused
// at once, with a text, and without a stack that ends.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "executor/variables/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/cost/profile_file.h"
#include "placement/cost/run_history.h"
#include "placement/files/plan_file.h"
#include "platform/checksum.h"
#include "platform/testing/fake_file_system.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "tools/reports/map_json.h"
#include "training/adapters/peft_config.h"
#include "training/checkpoint/checkpoint_index.h"
#include "training/data/data_spec.h"
#include "training/job/partition_folder.h"
#include "training/job/resume.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kDepth = 100000;

std::string Repeated(const std::string& part) {
  std::string text;
  for (int i = 0; i < kDepth; ++i) text += part;
  return text;
}

// As a checkpoint's index ends.
std::string WithChecksum(const std::string& body) {
  const uint64_t checksum = Checksum(std::as_bytes(std::span(body)));
  return absl::StrCat(body, ",\n\"checksum\": \"", absl::StrFormat("%016x", checksum), "\"\n}\n");
}

std::string WithLength(const std::string& header) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  return bytes + header;
}

absl::Status ReadSafetensors(const std::string& text) {
  const std::string bytes = WithLength(text);
  return ParseSafetensors(std::as_bytes(std::span(bytes)), "x.safetensors").status();
}

absl::Status ReadPartitions(const std::string& text) {
  FakeFileSystem files;
  EXPECT_TRUE(files.CreateDirectories("dump").ok());
  EXPECT_TRUE(files.WriteFileAtomically("dump/job.json", text).ok());
  return ReadPartitionFolder(files, "dump").status();
}

using Reader = std::function<absl::Status(const std::string& text)>;

// Reads the text as the file of that format. A key stands before what is nested.
const std::map<std::string, Reader>& JsonReaders() {
  static const auto* const readers = new std::map<std::string, Reader>{
      {"safetensors", ReadSafetensors},
      {"checkpoint index",
       [](const std::string& text) {
         return CheckpointIndex::FromJson(WithChecksum(text.substr(0, text.size() - 1)), "i")
             .status();
       }},
      {"adapter_config.json",
       [](const std::string& text) { return ParsePeftConfig(text, "p").status(); }},
      {"run history", [](const std::string& text) { return ParseRunHistory(text, "r").status(); }},
      {"data of a job", [](const std::string& text) { return DataSpec::FromJson(text).status(); }},
      {"partition folder", ReadPartitions},
      {"map",
       [](const std::string& text) {
         return MapFromJson(text, {DType::kString, DType::kFloat32, false}).status();
       }},
  };
  return *readers;
}

TEST(NestedJson, IsRefusedWithItsDepth) {
  const std::vector<std::string> texts = {
      absl::StrCat("{\"r\": ", Repeated("["), Repeated("]"), "}"),
      absl::StrCat("{\"r\": ", Repeated("{\"a\":"), "1", Repeated("}"), "}")};
  for (const auto& [format, read] : JsonReaders()) {
    for (const std::string& text : texts) {
      const absl::Status status = read(text);
      EXPECT_THAT(std::string(status.message()), HasSubstr("lists in each other")) << format;
    }
  }
}

// What is not closed is not JSON, and was followed as deep.
TEST(NestedJson, ThatDoesNotEndIsRefused) {
  for (const auto& [format, read] : JsonReaders()) {
    EXPECT_FALSE(read(Repeated("[")).ok()) << format;
    EXPECT_FALSE(read(Repeated("{\"a\":")).ok()) << format;
  }
}

// The index of a checkpoint had it as the text of its data.
TEST(NestedJson, IsNoDataOfAJob) {
  CheckpointJob saved, now;
  saved.data = absl::StrCat("{\"files\": ", Repeated("["), Repeated("]"), "}");
  now.data = "{\"batch\": 8}";
  EXPECT_THAT(JobDifferences(saved, now), ::testing::ElementsAre(HasSubstr("batch")));
}

TEST(NestedYaml, IsRefused) {
  const std::map<std::string, Reader> readers = {
      {"plan", [](const std::string& text) { return ParsePlanFile(text, "f").status(); }},
      {"cluster", [](const std::string& text) { return ParseClusterFile(text, "f").status(); }},
      {"profile", [](const std::string& text) { return ParseProfileFile(text, "f").status(); }}};
  for (const auto& [format, read] : readers) {
    for (const std::string& text :
         {absl::StrCat("mesh: ", Repeated("["), Repeated("]")), Repeated("{a: ")}) {
      const absl::Status status = read(text);
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << format << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("lie in each other")) << format;
    }
  }
}

TEST(NestedYaml, IsNoJobFile) {
  const std::string file = TestPath("job.yaml");
  WriteTestFile(file, absl::StrCat("model: ", Repeated("["), Repeated("]")));
  const CommandResult result = RunCommand({"train", "--config", file});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage)) << result.err;
  EXPECT_THAT(result.err, HasSubstr("job.yaml line 1: lists and maps lie in each other"));
}

}  // namespace
}  // namespace weft::testing
