#include "executor/variables/safetensors.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/random.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A file with this header and so many bytes of data.
std::string FileOf(const std::string& header, size_t data_bytes) {
  std::string file;
  for (size_t i = 0; i < 8; ++i)
    file.push_back(static_cast<char>((header.size() >> (8 * i)) & 255));
  return file + header + std::string(data_bytes, 'd');
}

absl::StatusOr<SafetensorsLayout> Parse(const std::string& file) {
  return ParseSafetensors(std::as_bytes(std::span(file)), "f.safetensors");
}

std::string ErrorOf(const std::string& file) {
  const auto layout = Parse(file);
  if (layout.ok()) return "no error";
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kDataLoss) << layout.status();
  EXPECT_THAT(std::string(layout.status().message()), HasSubstr("f.safetensors"));
  return std::string(layout.status().message());
}

// What the format's own library (Python, 0.8.0) writes for
//   save({'b': np.array([1, 2], np.int16), 'a': np.array([[1.5]], np.float32)}, {'k': 'v'})
TEST(Safetensors, ReadsAFileOfItsOwnLibrary) {
  const std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"I16","shape":[2],"data_offsets":[4,8]}}  )";
  const auto layout = Parse(FileOf(header, 8));
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->metadata.at("k"), "v");
  ASSERT_EQ(layout->tensors.size(), 2u);
  EXPECT_EQ(layout->tensors[0].name, "a");
  EXPECT_EQ(layout->tensors[0].dtype, DType::kFloat32);
  EXPECT_EQ(layout->tensors[0].shape, Shape({1, 1}));
  EXPECT_EQ(layout->tensors[0].offset, static_cast<int64_t>(8 + header.size()));
  EXPECT_EQ(layout->tensors[1].dtype, DType::kInt16);
  EXPECT_EQ(layout->tensors[1].offset, static_cast<int64_t>(8 + header.size() + 4));
}

TEST(Safetensors, WhatIsLaidOutIsRead) {
  const auto layout = LayOutSafetensors({{"small", DType::kUint8, Shape({3}), 0},
                                         {"wide", DType::kFloat64, Shape({2, 2}), 0},
                                         {"scalar \"quoted\"", DType::kFloat32, Shape(), 0},
                                         {"empty", DType::kFloat32, Shape({0, 4}), 0},
                                         {"half", DType::kBfloat16, Shape({5}), 0}},
                                        {{"writer", "weft"}});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->header.size() % 64, 0u);
  EXPECT_EQ(layout->file_bytes, static_cast<int64_t>(layout->header.size()) + 32 + 4 + 10 + 3);
  const auto read =
      Parse(layout->header +
            std::string(static_cast<size_t>(layout->file_bytes) - layout->header.size(), 'x'));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->metadata, layout->metadata);
  ASSERT_EQ(read->tensors.size(), 5u);
  std::map<std::string, SafetensorsEntry> by_name;
  for (const SafetensorsEntry& entry : read->tensors) by_name[entry.name] = entry;
  for (const SafetensorsEntry& entry : layout->tensors) {
    ASSERT_TRUE(by_name.contains(entry.name)) << entry.name;
    EXPECT_EQ(by_name[entry.name].dtype, entry.dtype);
    EXPECT_EQ(by_name[entry.name].shape, entry.shape);
    if (entry.bytes() == 0) continue;
    EXPECT_EQ(by_name[entry.name].offset, entry.offset) << entry.name;
    EXPECT_EQ(entry.offset % (DTypeBits(entry.dtype) / 8), 0) << entry.name;
  }
}

TEST(Safetensors, WhatTheFormatCannotHoldIsRefused) {
  const auto odd = LayOutSafetensors({{"z", DType::kComplex64, Shape({1}), 0}}, {});
  EXPECT_EQ(odd.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(odd.status().message()), AllOf(HasSubstr("'z'"), HasSubstr("complex64")));
  const auto twice = LayOutSafetensors(
      {{"z", DType::kFloat32, Shape({1}), 0}, {"z", DType::kFloat32, Shape({1}), 0}}, {});
  EXPECT_EQ(twice.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Safetensors, LengthsThatLieAreFound) {
  EXPECT_THAT(ErrorOf("1234567"), HasSubstr("7 bytes and no header"));
  std::string file = FileOf("{}", 0);
  file[0] = 3;
  EXPECT_THAT(ErrorOf(file), HasSubstr("said to have 3 bytes, of 10"));
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(0xff);
  EXPECT_THAT(ErrorOf(file), HasSubstr("18446744073709551615"));
  EXPECT_THAT(ErrorOf(FileOf("[]", 0)), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf(FileOf("{", 0)), HasSubstr("not a JSON object"));
}

TEST(Safetensors, TensorsThatDoNotFillTheDataAreFound) {
  const auto entry = [](const char* name, const char* shape, const char* offsets) {
    return absl::StrCat("\"", name, R"(":{"dtype":"F32","shape":)", shape, R"(,"data_offsets":)",
                        offsets, "}");
  };
  const auto file = [](const std::string& entries) { return FileOf("{" + entries + "}", 8); };
  EXPECT_TRUE(Parse(file(entry("a", "[2]", "[0,8]"))).ok());
  EXPECT_THAT(ErrorOf(file(entry("a", "[1]", "[0,4]"))), HasSubstr("its tensors end at byte"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[1]", "[4,8]"))),
              HasSubstr("'a' begins at byte 4 of the data, the one before it ends at 0"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[2]", "[0,8]") + "," + entry("b", "[1]", "[4,8]"))),
              HasSubstr("'b' begins at byte 4"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[3]", "[0,8]"))), HasSubstr("'a' of shape [3]"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[2]", "[8,0]"))), HasSubstr("from byte 8 to 0"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[2]", "[0,18446744073709551615]"))), HasSubstr("'a'"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[1099511627776,1099511627776]", "[0,8]"))),
              HasSubstr("'a'"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[1099511627776,4194304]", "[0,8]"))), HasSubstr("'a'"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[-1]", "[0,8]"))), HasSubstr("a shape that no tensor has"));
  EXPECT_THAT(ErrorOf(file(entry("a", "[2]", "[0,8]") + "," + entry("a", "[2]", "[0,8]"))),
              HasSubstr("a tensor twice"));
  EXPECT_THAT(ErrorOf(file(R"("a":{"dtype":"F7","shape":[2],"data_offsets":[0,8]})")),
              HasSubstr("type 'F7'"));
  EXPECT_THAT(ErrorOf(file(R"("a":[])")), HasSubstr("has no dtype"));
  EXPECT_THAT(ErrorOf(file(R"("__metadata__":{"k":1})")), HasSubstr("metadata"));
}

// Whatever the bytes are, the answer is a layout within the file or an error that names it.
TEST(Safetensors, AnyChangedByteEndsInALayoutOrAnError) {
  const auto layout = LayOutSafetensors(
      {{"w", DType::kFloat32, Shape({2, 3}), 0}, {"n", DType::kInt64, Shape({2}), 0}}, {});
  ASSERT_TRUE(layout.ok());
  const std::string whole =
      layout->header +
      std::string(static_cast<size_t>(layout->file_bytes) - layout->header.size(), 'x');
  RandomSequence random(RandomKey(1, "safetensors"));
  int errors = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string file = whole;
    for (uint64_t i = 0; i <= random.Below(3); ++i) {
      file[random.Below(layout->header.size())] = static_cast<char>(random.Below(256));
    }
    if (random.Below(4) == 0) file.resize(random.Below(file.size()));
    const auto read = Parse(file);
    errors += read.ok() ? 0 : 1;
    if (!read.ok()) continue;
    for (const SafetensorsEntry& entry : read->tensors) {
      EXPECT_LE(entry.offset + entry.bytes(), static_cast<int64_t>(file.size()));
    }
  }
  EXPECT_GT(errors, 2000);
}

TEST(Safetensors, DeepHeadersAreRefused) {
  const std::string deep(100000, '[');
  ErrorOf(FileOf("{\"a\":" + deep, 0));
  ErrorOf(FileOf(deep, 0));
}

}  // namespace
}  // namespace weft
