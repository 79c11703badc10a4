// Checkpoints that somebody has forged with all checksums right: what they say is held against
// itself and against their files.
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/checksum.h"
#include "platform/testing/fake_file_system.h"
#include "training/checkpoint/checkpoint.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

std::string Hex(const std::string& bytes) {
  return absl::StrFormat("%016x", Checksum(std::as_bytes(std::span(bytes))));
}

// A safetensors file with this header.
std::string FileOf(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  return bytes + header + data;
}

// w is uint8[4], cut into rows 1, 2 of file a and 3, 4 of file b; v is uint8[2], in a.
constexpr char kHeaderOfA[] = R"({"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                              R"("w":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})";
constexpr char kHeaderOfB[] = R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
constexpr char kIndex[] = R"({
"format": "weft-checkpoint",
"version": 1,
"step": 3,
"position": {"epoch":0,"step_in_epoch":3,"steps_per_epoch":9},
"random": {"seed":7},
"model": {"file_checksum":"0000000000000001","weights_checksum":"0000000000000002"},
"data": {"batch":4},
"flags": {"--lr":"0.1"},
"workers": 2,
"plan": "mesh: {data: 2}",
"loop": {"best":0.5},
"files": [
 {"name":"a","bytes":BYTES_A,"checksum":"SUM_A"},
 {"name":"b","bytes":BYTES_B,"checksum":"SUM_B"}
],
"tensors": [
 {"name":"v","dtype":"uint8","shape":[2],"parts":[{"file":0,"checksum":"SUM_V"}]},
 {"name":"w","dtype":"uint8","shape":[4],"parts":[
  {"file":0,"checksum":"SUM_W0","slice":SLICE_0},
  {"file":1,"checksum":"SUM_W1","slice":SLICE_1}]}
])";
constexpr char kSlice0[] =
    R"({"axis":0,"blocks":1,"shards":1,"shard":0,"row_shards":2,"row_shard":0})";
constexpr char kSlice1[] =
    R"({"axis":0,"blocks":1,"shards":1,"shard":0,"row_shards":2,"row_shard":1})";

class ForgedCheckpointTest : public ::testing::Test {
 protected:
  // What Open, Verify and Read say of the checkpoint with one text of the index, or of the header
  // of file a, replaced by another one. "" where they take it.
  std::string Refusal(const std::string& from, const std::string& to) {
    const std::string header = absl::StrReplaceAll(kHeaderOfA, {{from, to}});
    const std::string a = FileOf(header, "vvww"), b = FileOf(kHeaderOfB, "xx");
    std::string index = absl::StrReplaceAll(kIndex, {{"SLICE_0", kSlice0},
                                                     {"SLICE_1", kSlice1},
                                                     {"SUM_V", Hex("vv")},
                                                     {"SUM_W0", Hex("ww")},
                                                     {"SUM_W1", Hex("xx")},
                                                     {"SUM_A", Hex(a)},
                                                     {"SUM_B", Hex(b)},
                                                     {"BYTES_A", absl::StrCat(a.size())},
                                                     {"BYTES_B", absl::StrCat(b.size())}});
    const bool is_of_header = header != kHeaderOfA;
    EXPECT_TRUE(from.empty() || is_of_header || index.find(from) != std::string::npos) << from;
    if (!from.empty() && !is_of_header) index.replace(index.find(from), from.size(), to);
    absl::StrAppend(&index, ",\n\"checksum\": \"", Hex(index), "\"\n}\n");
    testing::FakeFileSystem files;
    EXPECT_TRUE(files.CreateDirectories("c").ok());
    EXPECT_TRUE(files.WriteFileAtomically("c/index.json", index).ok());
    EXPECT_TRUE(files.WriteFileAtomically("c/a", a).ok());
    EXPECT_TRUE(files.WriteFileAtomically("c/b", b).ok());
    const auto checkpoint = Checkpoint::Open(files, "c");
    absl::Status status = checkpoint.status();
    if (status.ok()) status = checkpoint->Verify();
    if (status.ok()) status = checkpoint->Read("w").status();
    return std::string(status.message());
  }
};

TEST_F(ForgedCheckpointTest, AsItIsItCanBeRead) { EXPECT_EQ(Refusal("", ""), ""); }

TEST_F(ForgedCheckpointTest, Shapes) {
  for (const std::string shape :
       {"[-4]", "[1e3]", "[4.5]", "[\"4\"]", "4", "{}", "[[4]]", "[null]", "[18446744073709551615]",
        "[1099511627777]", "[1099511627776,1099511627776]",
        "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4]"}) {
    EXPECT_THAT(Refusal("\"shape\":[4]", "\"shape\":" + shape), HasSubstr("is damaged")) << shape;
  }
  EXPECT_THAT(Refusal("\"shape\":[4]", "\"shape\":[5]"), HasSubstr("tensor 'w' is uint8[2]"));
  EXPECT_THAT(Refusal("\"shape\":[4]", "\"shape\":[4,0]"), HasSubstr("'w'"));
  EXPECT_THAT(Refusal("\"shape\":[4]", "\"shape\":[]"), HasSubstr("rows of a scalar"));
}

TEST_F(ForgedCheckpointTest, TheSumOfPartsDoesNotOverflow) {
  // Each of both is the whole of 2^62 elements.
  const std::string huge = "\"shape\":[1099511627776,4194304]";
  EXPECT_THAT(Refusal("\"shape\":[4]", huge), HasSubstr("is damaged"));
  const std::string whole = R"("parts":[{"file":0,"checksum":"0000000000000000"},)"
                            R"({"file":1,"checksum":"0000000000000000"}],"was":[)";
  EXPECT_THAT(Refusal("\"shape\":[4],\"parts\":[", absl::StrCat(huge, ",", whole)),
              HasSubstr("do not go together"));
}

TEST_F(ForgedCheckpointTest, Slices) {
  const auto slice = [this](const std::string& field, const std::string& value) {
    const std::string from = absl::StrCat("\"", field, "\":");
    const size_t begin = std::string(kSlice1).find(from) + from.size();
    const size_t end = std::string(kSlice1).find_first_of(",}", begin);
    return Refusal(kSlice1, std::string(kSlice1).replace(begin, end - begin, value));
  };
  EXPECT_EQ(slice("row_shard", "1"), "");
  EXPECT_THAT(slice("row_shard", "0"), HasSubstr("do not go together"));
  EXPECT_THAT(slice("row_shard", "2"), HasSubstr("a slice that there is not"));
  EXPECT_THAT(slice("row_shards", "3"), HasSubstr("do not go together"));
  for (const char* const field : {"axis", "blocks", "shards", "shard", "row_shards", "row_shard"}) {
    for (const char* const value : {"-1", "18446744073709551615", "1.5", "null", "\"0\"", "[]"}) {
      EXPECT_THAT(slice(field, value), HasSubstr("is damaged")) << field << " " << value;
    }
  }
  for (const char* const field : {"shards", "row_shards"}) {
    EXPECT_THAT(slice(field, "0"), HasSubstr("a slice that there is not")) << field;
  }
  EXPECT_NE(slice("shards", "1048576"), "");
  EXPECT_NE(slice("row_shards", "1048576"), "");
}

TEST_F(ForgedCheckpointTest, FilesAndTheirSizes) {
  const std::string b = R"({"name":"b")", second = R"("parts":[{"file":0)";
  EXPECT_THAT(Refusal(b, R"({"name":"a")"), HasSubstr("the file 'a' is there twice"));
  EXPECT_THAT(Refusal(b, R"({"name":"none")"), HasSubstr("it is missing"));
  for (const std::string name : {"", "../c/b", "/etc/passwd", "c/b"}) {
    EXPECT_THAT(Refusal(b, absl::StrCat("{\"name\":\"", name, "\"")),
                HasSubstr("a file is called"));
  }
  for (const std::string name : {"..", ".", "index.json", R"(b\u0000)", R"(\u001b[31mb)"}) {
    EXPECT_NE(Refusal(b, absl::StrCat("{\"name\":\"", name, "\"")), "") << name;
  }
  for (const std::string bytes : {"0", "1", "9223372036854775807", "18446744073709551615", "-1"}) {
    const std::string said = absl::StrCat(R"("name":"b","bytes":)", bytes, R"(,"was":)");
    EXPECT_THAT(Refusal(R"("name":"b","bytes":)", said), HasSubstr("is damaged")) << bytes;
  }
  EXPECT_THAT(Refusal(second, R"("parts":[{"file":2)"), HasSubstr("a part is in file 2 of 2"));
  EXPECT_THAT(Refusal(second, R"("parts":[{"file":1)"), HasSubstr("tensor 'v' is missing"));
  EXPECT_THAT(Refusal(second, R"("parts":[{"file":-1)"), HasSubstr("'file'"));
}

TEST_F(ForgedCheckpointTest, NamesThatComeTwiceOrAreMissing) {
  EXPECT_THAT(Refusal(R"({"name":"v")", R"({"name":"w")"), HasSubstr("is there twice"));
  for (const std::string key : {"format", "version", "step", "position", "random", "model", "data",
                                "flags", "workers", "plan", "loop", "files", "tensors"}) {
    EXPECT_THAT(Refusal(absl::StrCat("\"", key, "\": "), absl::StrCat("\"not ", key, "\": ")),
                HasSubstr("is damaged"))
        << key;
  }
  EXPECT_THAT(Refusal(R"("dtype":"uint8","shape":[4])", R"("shape":[4])"), HasSubstr("'dtype'"));
  for (const std::string dtype : {"string", "invalid", "uint9", "", "float32"}) {
    EXPECT_THAT(Refusal(R"("dtype":"uint8","shape":[4])",
                        absl::StrCat(R"("dtype":")", dtype, R"(","shape":[4])")),
                HasSubstr("is damaged"))
        << dtype;
  }
}

TEST_F(ForgedCheckpointTest, NumbersOfTheJob) {
  for (const std::string step : {"-1", "1e3", "9007199254740993", "18446744073709551616"}) {
    EXPECT_THAT(Refusal("\"step\": 3", "\"step\": " + step), HasSubstr("is damaged")) << step;
  }
  EXPECT_THAT(Refusal(R"("workers": 2)", R"("workers": 4294967297)"), HasSubstr("'workers'"));
  EXPECT_THAT(Refusal(R"({"best":0.5})", R"({"best":1e999})"), HasSubstr("is damaged"));
  EXPECT_THAT(Refusal(R"({"best":0.5})", R"({"best":"0.5"})"), HasSubstr("'best' is no number"));
}

// Of the files themselves: their checksums in the index are right.
TEST_F(ForgedCheckpointTest, OffsetsOfTensorsInAFile) {
  const std::string w = R"("data_offsets":[2,4])";
  for (const std::string offsets : {"[1,3]", "[3,5]", "[2,5]", "[4,2]", "[0,2]", "[-2,0]", "[2]",
                                    "[2,4,6]", "[18446744073709551614,0]"}) {
    EXPECT_THAT(Refusal(w, absl::StrCat(R"("data_offsets":)", offsets)), HasSubstr("is damaged"))
        << offsets;
  }
  EXPECT_THAT(Refusal(R"("v":{)", R"("w":{)"), HasSubstr("a tensor twice"));
  EXPECT_THAT(Refusal(R"("v":{"dtype":"U8")", R"("v":{"dtype":"I8")"),
              HasSubstr("tensor 'v' is int8[2], the index says uint8[2]"));
}

}  // namespace
}  // namespace weft
