#include "training/data/column_reader.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"
#include "training/records/example.pb.h"
#include "training/records/little_endian.h"
#include "training/records/record_file.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Decoded(const char* base64) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(base64, &bytes));
  return bytes;
}

// numpy.savez(x=uint8 [[1, 2], [3, 250]], y=int64 [7, -1])
constexpr char kStoredNpz[] =
    "UEsDBC0AAAAAAAAAIQCZgF2x//////////8FABQAeC5ucHkBABAAhAAAAAAAAACEAAAAAAAAAJNOVU1QWQEAdgB7J2Rl"
    "c2NyJzogJ3x1MScsICdmb3J0cmFuX29yZGVyJzogRmFsc2UsICdzaGFwZSc6ICgyLCAyKSwgfSAgICAgICAgICAgICAg"
    "ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAKAQID+lBLAwQtAAAAAAAAACEA4JLOvP//"
    "////////BQAUAHkubnB5AQAQAJAAAAAAAAAAkAAAAAAAAACTTlVNUFkBAHYAeydkZXNjcic6ICc8aTgnLCAnZm9ydHJh"
    "bl9vcmRlcic6IEZhbHNlLCAnc2hhcGUnOiAoMiwpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg"
    "ICAgICAgICAgICAgICAgICAgICAgICAgCgcAAAAAAAAA//////////9QSwECLQMtAAAAAAAAACEAmYBdsYQAAACEAAAA"
    "BQAAAAAAAAAAAAAAgAEAAAAAeC5ucHlQSwECLQMtAAAAAAAAACEA4JLOvJAAAACQAAAABQAAAAAAAAAAAAAAgAG7AAAA"
    "eS5ucHlQSwUGAAAAAAIAAgBmAAAAggEAAAAA";
// numpy.savez_compressed(x=uint8 [2, 100], element i is i % 5)
constexpr char kDeflatedNpz[] =
    "UEsDBC0AAAAIAAAAIQDZzhx4//////////8FABQAeC5ucHkBABAASAEAAAAAAABQAAAAAAAAAJvsF+obEMnIUMZQrZ6S"
    "WpxcpG6loF5Taqiuo6Cell9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5GkY6CoYGBpo6CrUKZAIuBkYmZpZhQAAAUEsB"
    "Ai0DLQAAAAgAAAAhANnOHHhQAAAASAEAAAUAAAAAAAAAAAAAAIABAAAAAHgubnB5UEsFBgAAAAABAAEAMwAAAIcAAAAA"
    "AA==";
// 2 x 3 pixels: red, green, blue; (10, 20, 30), (40, 50, 60), (70, 80, 90).
constexpr char kPng[] =
    "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAF0lEQVR4nGP4z8DAAMFcInIaRjZuAVEAM1kEwOQkmMsA"
    "AAAASUVORK5CYII=";
// 1 x 1 pixel: (7, 7, 7).
constexpr char kTinyPng[] =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgZ2cHAAAuABaSeXmLAAAAAElFTkSuQmCC";
// 8 x 8 pixels by Pillow, which reads them as (198, 101, 50).
constexpr char kJpeg[] =
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABALDA4MChAODQ4SERATGCgaGBYWGDEjJR0oOjM9PDkzODdASFxOQERXRTc4"
    "UG1RV19iZ2hnPk1xeXBkeFxlZ2P/2wBDARESEhgVGC8aGi9jQjhCY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2Nj"
    "Y2NjY2NjY2NjY2NjY2NjY2NjY2P/wAARCAAIAAgDASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAL/xAAUEAEA"
    "AAAAAAAAAAAAAAAAAAAA/8QAFAEBAAAAAAAAAAAAAAAAAAAABf/EABQRAQAAAAAAAAAAAAAAAAAAAAD/2gAMAwEAAhED"
    "EQA/AJAFmX//2Q==";
// By hand in Python, without our code: two records of label (3; -1), values (0.5, -2; 1, 4), ids
// (1, 2, 3; 9) and raw (bytes 5, 6; 7, 8).
constexpr char kRecords[] =
    "SQAAAAAAAAA2JQ6jCkcKDgoFbGFiZWwSBRoDCgEDChYKBnZhbHVlcxIMEgoKCAAAAD8AAADACg4KA2lkcxIHGgUKAwEC"
    "AwoNCgNyYXcSBgoECgIFBmWIW5JQAAAAAAAAAJQPm4IKTgoXCgVsYWJlbBIOGgwKCv///////////wEKFgoGdmFsdWVz"
    "EgwSCgoIAACAPwAAgEAKDAoDaWRzEgUaAwoBCQoNCgNyYXcSBgoECgIHCJTD400=";

class ColumnReaderTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& bytes) {
    ASSERT_TRUE(files_.CreateDirectories(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(files_.WriteFileAtomically(path, bytes).ok());
  }

  absl::StatusOr<std::unique_ptr<DataColumn>> Open(const std::string& path,
                                                   bool is_labels = false) {
    DataSpec::File file;
    SplitPart(files_, path, file);
    file.is_labels = is_labels;
    file.input = input_;
    file.format = format_;
    file.padding = padding_;
    return OpenColumn(files_, file, spec_);
  }

  // All samples as one tensor's text, or the error.
  std::string Read(const std::string& path, bool is_labels = false) {
    const auto column = Open(path, is_labels);
    if (!column.ok()) return std::string(column.status().message());
    auto tensor = Tensor::Allocate((*column)->dtype(), (*column)->shape());
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    for (int64_t row = 0; row < (*column)->samples(); ++row) {
      auto* const target = static_cast<char*>(tensor->raw_data()) + row * (*column)->sample_bytes();
      const absl::Status read = (*column)->Read(row, target);
      if (!read.ok()) return std::string(read.message());
      const void* const in_memory = (*column)->Peek(row);
      if (in_memory != nullptr) {
        EXPECT_EQ(std::memcmp(in_memory, target, (*column)->sample_bytes()), 0) << row;
      }
    }
    return tensor->ToString(/*max_elements=*/24);
  }

  testing::FakeFileSystem files_;
  DataSpec spec_;
  std::string format_;
  std::string input_ = "x";
  Padding padding_;
};

TEST_F(ColumnReaderTest, ThePartFollowsTheLastColonUnlessTheFileHasThatName) {
  DataSpec::File file;
  SplitPart(files_, "a/iris.csv:0-3", file);
  EXPECT_EQ(file.path, "a/iris.csv");
  EXPECT_EQ(file.part, "0-3");
  SplitPart(files_, "iris.csv", file);
  EXPECT_EQ(file.path, "iris.csv");
  EXPECT_EQ(file.part, "");
  Write("/odd:name", "");
  SplitPart(files_, "/odd:name", file);
  EXPECT_EQ(file.path, "/odd:name");
  EXPECT_EQ(file.part, "");
}

TEST_F(ColumnReaderTest, AnUnknownFormatListsTheKnown) {
  format_ = "parquet";
  EXPECT_THAT(Read("/x"), AllOf(HasSubstr("'parquet' is unknown"), HasSubstr("idx, npy, npz")));
}

TEST_F(ColumnReaderTest, ArraysOfAnArchive) {
  Write("/two.npz", Decoded(kStoredNpz));
  EXPECT_EQ(Read("/two.npz:x"), "uint8[2,2]{1, 2, 3, 250}");
  EXPECT_EQ(Read("/two.npz:y"), "int64[2]{7, -1}");
  EXPECT_THAT(Read("/two.npz"), HasSubstr("holds 2 arrays; name one, as /two.npz:NAME: x.npy, y"));
  Write("/one.npz", Decoded(kDeflatedNpz));
  EXPECT_THAT(Read("/one.npz"), HasSubstr("uint8[2,100]{0, 1, 2, 3, 4, 0, 1"));
  EXPECT_THAT(Read("/one.npz:x"), HasSubstr("uint8[2,100]"));
  EXPECT_THAT(Read("/one.npz:x.npy"), HasSubstr("uint8[2,100]"));
  EXPECT_THAT(Read("/one.npz:y"), HasSubstr("has no member 'y.npy'; it has 1: x.npy"));
}

TEST_F(ColumnReaderTest, ADamagedArchiveIsNamed) {
  Write("/cut.npz", Decoded(kStoredNpz).substr(0, 400));
  EXPECT_THAT(Read("/cut.npz:x"), HasSubstr("data file '/cut.npz': truncated"));
}

TEST_F(ColumnReaderTest, AnArrayHasNoParts) {
  Write("/x.npy", ToNpy(Tensor::Of<float>({1}, {1})).value());
  EXPECT_THAT(Read("/x.npy:a"), HasSubstr("is an array, which has no parts such as 'a'"));
}

TEST_F(ColumnReaderTest, CsvByItsEnding) {
  Write("/t.csv", "a,b\n1,x\n2,y\n");
  EXPECT_EQ(Read("/t.csv:a"), "int64[2]{1, 2}");
  EXPECT_EQ(Read("/t.csv", /*is_labels=*/true), "int64[2]{0, 1}");
  Write("/t.tsv", "a,\tb\n1\t2\n");
  EXPECT_EQ(Read("/t.tsv:b"), "int64[1]{2}");
  Write("/t.data", "x\ny\n");
  format_ = "csv-no-header";
  EXPECT_EQ(Read("/t.data:0"), "int64[2]{0, 1}");
}

TEST_F(ColumnReaderTest, TextGivesWindowsAndTheNextTokens) {
  Write("/t.txt", "abcdefgh");
  spec_.sequence_length = 3;
  EXPECT_EQ(Read("/t.txt"), "uint8[2,3]{97, 98, 99, 100, 101, 102}");
  EXPECT_EQ(Read("/t.txt", /*is_labels=*/true), "uint8[2,3]{98, 99, 100, 101, 102, 103}");
  EXPECT_EQ(Read("/t.txt:next"), Read("/t.txt", /*is_labels=*/true));
  spec_.vocabulary = "characters";
  EXPECT_EQ(Read("/t.txt"), "uint16[2,3]{0, 1, 2, 3, 4, 5}");
  spec_.stride = 2;
  EXPECT_EQ(Read("/t.txt"), "uint16[3,3]{0, 1, 2, 2, 3, 4, 4, 5, 6}");
  EXPECT_EQ(Read("/t.txt", /*is_labels=*/true), "uint16[3,3]{1, 2, 3, 3, 4, 5, 5, 6, 7}");
}

TEST_F(ColumnReaderTest, TextByAVocabularyFile) {
  Write("/t.txt", "the cat the");
  Write("/v.txt", "the\n\\s\ncat\n");
  spec_.vocabulary = "/v.txt";
  spec_.sequence_length = 2;
  EXPECT_EQ(Read("/t.txt"), "uint16[2,2]{0, 1, 2, 1}");
  spec_.vocabulary = "/missing.txt";
  EXPECT_THAT(Read("/t.txt"), HasSubstr("/missing.txt"));
}

TEST_F(ColumnReaderTest, ATextShorterThanASampleSaysWhatToDo) {
  Write("/t.txt", "abc");
  spec_.sequence_length = 3;
  EXPECT_EQ(Read("/t.txt"),
            "data file '/t.txt': holds 3 tokens; a sample of 3 and the one after need 4; make "
            "--sequence-length shorter");
  EXPECT_THAT(Read("/t.txt:last"), HasSubstr("has no part 'last'; there are tokens, next"));
}

TEST_F(ColumnReaderTest, WindowsKnowHowManyFollowersTheyShareTokensWith) {
  Write("/t.txt", std::string(100, 'a'));
  spec_.sequence_length = 10;
  EXPECT_EQ((*Open("/t.txt"))->info().overlap, 0);
  spec_.stride = 4;
  EXPECT_EQ((*Open("/t.txt"))->info().overlap, 2);
  EXPECT_TRUE((*Open("/t.txt"))->info().is_sequence);
}

TEST_F(ColumnReaderTest, TokenFilesOfTwoWidths) {
  Write("/t.bin", std::string("\x01\x02\x00\x00\x03\x00\x00\x00\x04\x00\x00\x01", 12));
  spec_.sequence_length = 2;
  format_ = "tokens16";
  EXPECT_EQ(Read("/t.bin"), "uint16[2,2]{513, 0, 3, 0}");
  EXPECT_EQ(Read("/t.bin", /*is_labels=*/true), "uint16[2,2]{0, 3, 0, 4}");
  format_ = "tokens32";
  EXPECT_EQ(Read("/t.bin"), "uint32[1,2]{513, 3}");
  Write("/odd.bin", "12345");
  EXPECT_THAT(Read("/odd.bin"), HasSubstr("5 bytes are no multiple of 4"));
}

TEST_F(ColumnReaderTest, CifarHasLabelBytesBeforePlanes) {
  std::string record(3073, '\x05');
  record[0] = '\x07';
  record[1] = '\x01';
  Write("/c.bin", record + record);
  format_ = "cifar10";
  EXPECT_EQ(Read("/c.bin", /*is_labels=*/true), "uint8[2]{7, 7}");
  EXPECT_THAT(Read("/c.bin"), HasSubstr("uint8[2,3,32,32]{1, 5, 5"));
  EXPECT_THAT(Read("/c.bin:class"), HasSubstr("has no part 'class'; there are image, label"));
  format_ = "cifar100";
  EXPECT_THAT(Read("/c.bin"), HasSubstr("6146 bytes are no whole records of 3074"));
  Write("/c.bin", record + "\x01");
  EXPECT_EQ(Read("/c.bin:coarse"), "uint8[1]{7}");
  EXPECT_EQ(Read("/c.bin", /*is_labels=*/true), "uint8[1]{1}");
}

TEST_F(ColumnReaderTest, AnImageFolderHasAClassForEachSubfolder) {
  Write("/p/dog/b.png", Decoded(kPng));
  Write("/p/cat/z.PNG", Decoded(kPng));
  Write("/p/cat/a.png", Decoded(kPng));
  Write("/p/cat/notes.md", "no image");
  Write("/p/.cache/x.png", "no image");
  Write("/p/list.txt", "no folder");
  EXPECT_EQ(Read("/p", /*is_labels=*/true), "int64[3]{0, 0, 1}");
  EXPECT_THAT((*Open("/p", true))->info().class_names, ElementsAre("cat", "dog"));
  EXPECT_EQ(Read("/p:image").substr(0, 80),
            "uint8[3,3,2,3]{255, 0, 0, 10, 40, 70, 0, 255, 0, 20, 50, 80, 0, 0, 255, 30, 60, ");
}

TEST_F(ColumnReaderTest, ClassesMayBeGiven) {
  Write("/p/dog/b.png", Decoded(kPng));
  spec_.classes = {"dog", "cat"};
  EXPECT_EQ(Read("/p", /*is_labels=*/true), "int64[1]{0}");
  spec_.classes = {"cat"};
  EXPECT_THAT(Read("/p", /*is_labels=*/true), HasSubstr("the class 'dog' is not among the 1"));
}

TEST_F(ColumnReaderTest, ImagesOfAnotherSizeAreNamedOrScaled) {
  Write("/p/a.png", Decoded(kPng));
  Write("/p/b.png", Decoded(kTinyPng));
  EXPECT_EQ(Read("/p"),
            "data file '/p/b.png': an image of 1 x 1 pixels, the first has 2 x 3; --image-shape "
            "3x2x3 scales all to one size");
  EXPECT_THAT(Read("/p", /*is_labels=*/true), HasSubstr("lie in no class folders"));
  spec_.image_shape = {1, 1, 1};
  Write("/p/a.png", Decoded(kTinyPng));
  EXPECT_EQ(Read("/p"), "uint8[2,1,1,1]{7, 7}");
  spec_.image_shape = {3, 2, 2};
  EXPECT_THAT(Read("/p"), HasSubstr("uint8[2,3,2,2]{7, 7, 7, 7, 7, 7"));
}

TEST_F(ColumnReaderTest, JpegsAreDecoded) {
  Write("/p/a.jpg", Decoded(kJpeg));
  const auto column = Open("/p");
  ASSERT_TRUE(column.ok()) << column.status();
  EXPECT_EQ((*column)->sample_shape(), (Shape{3, 8, 8}));
  std::vector<uint8_t> pixels(192);
  ASSERT_TRUE((*column)->Read(0, pixels.data()).ok());
  EXPECT_NEAR(pixels[0], 198, 1);
  EXPECT_NEAR(pixels[64], 101, 1);
  EXPECT_NEAR(pixels[191], 50, 1);
}

TEST_F(ColumnReaderTest, BrokenImagesAreNamed) {
  Write("/p/a.png", Decoded(kPng));
  Write("/p/b.png", "this is no image");
  EXPECT_THAT(Read("/p"), HasSubstr("data file '/p/b.png': is no image"));
  Write("/p/b.png", Decoded(kPng).substr(0, 50));
  EXPECT_THAT(Read("/p"), HasSubstr("data file '/p/b.png'"));
  ASSERT_TRUE(files_.CreateDirectories("/none/class").ok());
  EXPECT_THAT(Read("/none"), HasSubstr("there is no image in it"));
}

TEST_F(ColumnReaderTest, FeaturesOfRecords) {
  Write("/r.tfrecord", Decoded(kRecords));
  EXPECT_EQ(Read("/r.tfrecord:label"), "int64[2]{3, -1}");
  EXPECT_EQ(Read("/r.tfrecord:values"), "float32[2,2]{0.5, -2, 1, 4}");
  EXPECT_EQ(Read("/r.tfrecord:raw"), "uint8[2,2]{5, 6, 7, 8}");
}

TEST_F(ColumnReaderTest, FeaturesAreNamedWhereOneIsMissing) {
  Write("/r.tfrecord", Decoded(kRecords));
  EXPECT_THAT(Read("/r.tfrecord"), HasSubstr("which feature?"));
  EXPECT_EQ(Read("/r.tfrecord:color"),
            "data file '/r.tfrecord': record 0 has no feature 'color'; it has 4: ids, label, raw, "
            "values");
}

TEST_F(ColumnReaderTest, RaggedListsArePadded) {
  Write("/r.tfrecord", Decoded(kRecords));
  EXPECT_EQ(Read("/r.tfrecord:ids"),
            "data file '/r.tfrecord': record 1, feature 'ids': 1 values, the first has 3; --pad "
            "INPUT=N makes all N long");
  padding_ = {{4}, -100};
  EXPECT_EQ(Read("/r.tfrecord:ids"), "int64[2,4]{1, 2, 3, -100, 9, -100, -100, -100}");
  EXPECT_THAT(Read("/r.tfrecord:raw"), HasSubstr("padded with -100, which its bytes cannot be"));
  padding_ = {{2}, 0};
  EXPECT_EQ(Read("/r.tfrecord:ids"),
            "data file '/r.tfrecord': record 0, feature 'ids': 3 values, more than the 2 that it "
            "is padded to; give more, or :cut to lose the rest");
  padding_.cut = true;
  EXPECT_EQ(Read("/r.tfrecord:ids"), "int64[2,2]{1, 2, 9, 0}");
}

TEST_F(ColumnReaderTest, RecordsAreReadForTheirLengthsWhereTheseAreWanted) {
  Write("/r.tfrecord", Decoded(kRecords));
  padding_ = {{4}};
  EXPECT_EQ((*Open("/r.tfrecord:ids"))->info().lengths, nullptr);
  padding_ = {{2, 4}};
  EXPECT_THAT(*(*Open("/r.tfrecord:ids"))->info().lengths, ElementsAre(3, 1));
  EXPECT_THAT(*(*Open("/r.tfrecord:raw"))->info().lengths, ElementsAre(2, 2));
  padding_ = {{2}, 0, /*cut=*/true};
  DataSpec::File& mask = spec_.files.emplace_back();
  mask.mask_of = "ids";
  EXPECT_EQ((*Open("/r.tfrecord:ids"))->info().lengths, nullptr);
  input_ = "ids";
  EXPECT_THAT(*(*Open("/r.tfrecord:ids"))->info().lengths, ElementsAre(2, 1));
}

TEST_F(ColumnReaderTest, LinesOfATextAreSamples) {
  Write("/t.txt", "ab\r\n\nc\nabc");
  format_ = "lines";
  padding_ = {{3}, -100};
  EXPECT_EQ(Read("/t.txt"), "int64[3,3]{97, 98, -100, 99, -100, -100, 97, 98, 99}");
  EXPECT_EQ(Read("/t.txt:next"), "int64[3,3]{98, 10, -100, 10, -100, -100, 98, 99, 10}");
  spec_.vocabulary = "characters";  // line feed, a, b, c
  EXPECT_EQ(Read("/t.txt"), "int64[3,3]{1, 2, -100, 3, -100, -100, 1, 2, 3}");
  EXPECT_EQ(Read("/t.txt", /*is_labels=*/true), "int64[3,3]{2, 0, -100, 0, -100, -100, 2, 3, 0}");
}

TEST_F(ColumnReaderTest, LinesWithoutATokenForTheirEndHaveNoNextTokens) {
  Write("/t.txt", "ab\nc\n");
  Write("/v", "ab\nc\n");
  format_ = "lines";
  spec_.vocabulary = "/v";
  padding_ = {{2}, 9};
  EXPECT_EQ(Read("/t.txt"), "int64[2,2]{0, 9, 1, 9}");
  EXPECT_THAT(Read("/t.txt:next"), HasSubstr("the token after a line, which the labels need"));
  Write("/v", "ab\nc\n\\n\n");
  EXPECT_EQ(Read("/t.txt:next"), "int64[2,2]{2, 9, 2, 9}");
  Write("/t.txt", "ab\nd\n");
  EXPECT_THAT(Read("/t.txt"), HasSubstr("/t.txt, line 1"));
}

TEST_F(ColumnReaderTest, DocumentsOfATokenFileAreSamples) {
  Write("/t.bin", std::string("\1\0\2\0\7\0\3\0\7\0", 10));
  format_ = "tokens16";
  spec_.document_end = 7;
  padding_ = {{2}, 0};
  EXPECT_EQ(Read("/t.bin"), "int64[2,2]{1, 2, 3, 0}");
  EXPECT_EQ(Read("/t.bin:next"), "int64[2,2]{2, 7, 7, 0}");
}

TEST_F(ColumnReaderTest, CellsOfACsvMayBeLists) {
  Write("/t.csv", "a,b\n1 2 3,0.5\n\"[4, 5]\",\n");
  padding_ = {{4}, -1};
  EXPECT_EQ(Read("/t.csv:a"), "int64[2,4]{1, 2, 3, -1, 4, 5, -1, -1}");
  EXPECT_EQ(Read("/t.csv:b"), "float64[2,4]{0.5, -1, -1, -1, -1, -1, -1, -1}");
  EXPECT_THAT(Read("/t.csv:a,b"), HasSubstr("--pad is for one column"));
  Write("/t.csv", "a\n1 2\n1 x\n");
  EXPECT_THAT(Read("/t.csv:a"), HasSubstr("line 3, column 'a': '1 x', expected a list of numbers"));
}

TEST_F(ColumnReaderTest, ShardsFollowEachOtherInTheOrderOfTheirNames) {
  const std::string all = Decoded(kRecords);
  const size_t first = 12 + ReadLittleEndian<uint64_t>(all, 0) + 4;
  Write("/d/s-1.tfrecord", all.substr(0, first));
  Write("/d/s-0.tfrecord", all.substr(first));
  Write("/d/s-2.tfrecord", "");
  Write("/d/other.tfrecord", "no records");
  EXPECT_EQ(Read("/d/s-*.tfrecord:label"), "int64[2]{-1, 3}");
  EXPECT_EQ(Read("/d/s-?.tfrecord:label"), "int64[2]{-1, 3}");
  EXPECT_THAT(Read("/d/t-*.tfrecord:label"), HasSubstr("no file is called '/d/t-*.tfrecord'"));
}

TEST_F(ColumnReaderTest, ImagesInRecordsAreDecoded) {
  records::Example example;
  auto& features = *example.mutable_features()->mutable_feature();
  features["image"].mutable_bytes_list()->add_value(Decoded(kPng));
  Write("/r.tfrecord", FrameRecord(example.SerializeAsString()));
  EXPECT_THAT(Read("/r.tfrecord:image"), HasSubstr("uint8[1,3,2,3]{255, 0, 0, 10, 40, 70"));
}

TEST_F(ColumnReaderTest, DamagedRecordsAreNamedByTheirPlace) {
  std::string bytes = Decoded(kRecords);
  bytes[110] ^= 1;  // inside the second payload
  Write("/r.tfrecord", bytes);
  EXPECT_THAT(Read("/r.tfrecord:label"),
              HasSubstr("data file '/r.tfrecord': the record at byte 89 is damaged"));
  Write("/r.tfrecord", FrameRecord("\xff\xff no protobuf"));
  EXPECT_THAT(Read("/r.tfrecord:label"), HasSubstr("record 0 is no tf.train.Example"));
  Write("/r.tfrecord", "");
  EXPECT_THAT(Read("/r.tfrecord:label"), HasSubstr("there is no record in it"));
}

TEST_F(ColumnReaderTest, SamplesOfOneLengthAreNotPadded) {
  Write("/t.txt", "abc");
  padding_ = {{4}};
  EXPECT_THAT(Read("/t.txt"), HasSubstr("is text, whose samples all have one length"));
  format_ = "tokens16";
  EXPECT_THAT(Read("/t.txt"), HasSubstr("is tokens16, whose samples all have one length"));
}

TEST_F(ColumnReaderTest, AChangedFileHasAnotherChecksum) {
  Write("/t.txt", std::string(1000, 'a'));
  const uint64_t before = (*Open("/t.txt"))->info().checksum;
  EXPECT_EQ((*Open("/t.txt"))->info().checksum, before);
  std::string changed(1000, 'a');
  changed[500] = 'b';
  Write("/t.txt", changed);
  EXPECT_NE((*Open("/t.txt"))->info().checksum, before);
}

TEST(SampledChecksumTest, SeesTheSizeAndBothEndsOfWhatIsLarge) {
  std::vector<std::byte> bytes(size_t{17} << 20);
  const uint64_t before = SampledChecksum(bytes);
  bytes.front() = std::byte{1};
  EXPECT_NE(SampledChecksum(bytes), before);
  bytes.front() = std::byte{0};
  bytes.back() = std::byte{1};
  EXPECT_NE(SampledChecksum(bytes), before);
  bytes.back() = std::byte{0};
  EXPECT_EQ(SampledChecksum(bytes), before);
  bytes.pop_back();
  EXPECT_NE(SampledChecksum(bytes), before);
}

// Large files stay mapped: the layout is read, the elements are when they are asked for.
TEST_F(ColumnReaderTest, ALargeArrayIsReadByTheRow) {
  const int64_t rows = (int64_t{65} << 20) / 1000;
  std::string file("\0\0\x0b\x02", 4);  // int16, rank 2, highest byte first
  for (const int64_t dim : {rows, int64_t{500}}) {
    for (int shift = 24; shift >= 0; shift -= 8) file.push_back(static_cast<char>(dim >> shift));
  }
  file.resize(file.size() + static_cast<size_t>(rows) * 1000);
  file[file.size() - 2] = '\x01';
  file[file.size() - 1] = '\x02';
  Write("/large.idx", file);
  const auto column = Open("/large.idx");
  ASSERT_TRUE(column.ok()) << column.status();
  EXPECT_EQ((*column)->shape(), (Shape{rows, 500}));
  EXPECT_EQ((*column)->tensor(), nullptr);
  EXPECT_EQ((*column)->info().held_bytes, 0);
  EXPECT_TRUE((*column)->info().is_work);
  std::vector<int16_t> sample(500);
  ASSERT_TRUE((*column)->Read(rows - 1, sample.data()).ok());
  EXPECT_EQ(sample[499], 258);
  EXPECT_EQ(sample[498], 0);
}

}  // namespace
}  // namespace weft
