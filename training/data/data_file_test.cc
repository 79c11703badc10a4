#include "training/data/data_file.h"

#include <zlib.h>

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_file_system.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Bytes(const std::vector<int>& values) {
  std::string bytes;
  for (int value : values) bytes.push_back(static_cast<char>(value));
  return bytes;
}

// An NPY file, version 1.0, with exactly this header text.
std::string Npy(const std::string& header, const std::string& payload) {
  return Bytes({0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<int>(header.size() & 0xff),
                static_cast<int>(header.size() >> 8)}) +
         header + payload;
}

std::string NpyHeader(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
}

std::string Gzip(std::string_view bytes) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// The elements as doubles, and the dtype and shape in front; the error where there is one.
std::string Text(const absl::StatusOr<Tensor>& tensor) {
  return tensor.ok() ? tensor->ToString() : tensor.status().ToString();
}

// Two samples of two bytes each.
const std::string& SmallIdx() {
  static const auto* const kBytes =
      new std::string(Bytes({0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 250}));
  return *kBytes;
}

const std::string& SmallNpy() {
  static const auto* const kBytes =
      new std::string(Npy(NpyHeader("<i2", "(3,)"), Bytes({1, 0, 255, 255, 0, 1})));
  return *kBytes;
}

TEST(ParseIdxTest, ReadsEveryElementType) {
  const auto one = [](int type, const std::vector<int>& element) {
    return Text(ParseIdx(Bytes({0, 0, type, 1, 0, 0, 0, 1}) + Bytes(element), "f"));
  };
  EXPECT_EQ(one(0x08, {200}), "uint8[1]{200}");
  EXPECT_EQ(one(0x09, {0xfe}), "int8[1]{-2}");
  EXPECT_EQ(one(0x0B, {0x01, 0x02}), "int16[1]{258}");
  EXPECT_EQ(one(0x0C, {0x01, 0x02, 0x03, 0x04}), "int32[1]{16909060}");
  EXPECT_EQ(one(0x0D, {0xc0, 0x20, 0, 0}), "float32[1]{-2.5}");
  EXPECT_EQ(one(0x0E, {0x3f, 0xf8, 0, 0, 0, 0, 0, 0}), "float64[1]{1.5}");
}

TEST(ParseIdxTest, KeepsTheShapeAndTheOrderOfElements) {
  EXPECT_EQ(Text(ParseIdx(SmallIdx(), "f")), "uint8[2,2]{1, 2, 3, 250}");
}

TEST(ParseIdxTest, TruncatedAnywhereIsDataLossNamingTheFile) {
  for (size_t size = 0; size < SmallIdx().size(); ++size) {
    const auto tensor = ParseIdx(SmallIdx().substr(0, size), "train-images");
    EXPECT_EQ(tensor.status().code(), absl::StatusCode::kDataLoss) << size;
    EXPECT_THAT(Message(tensor.status()),
                AllOf(HasSubstr("data file 'train-images'"), HasSubstr("truncated")))
        << size;
  }
}

TEST(ParseIdxTest, SaysHowManyBytesAreMissing) {
  EXPECT_EQ(Message(ParseIdx(SmallIdx().substr(0, 15), "f").status()),
            "data file 'f': truncated: 3 bytes of data, [2,2] of uint8 needs 4 x 1 bytes");
}

TEST(ParseIdxTest, BytesAfterTheEndAreAnError) {
  const auto tensor = ParseIdx(SmallIdx() + "ab", "f");
  EXPECT_EQ(tensor.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(tensor.status()), HasSubstr("2 bytes too many"));
}

TEST(ParseIdxTest, AnotherFormatIsNamedByItsFirstBytes) {
  const auto tensor = ParseIdx("PK\x03\x04 a zip file", "labels.npz");
  EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(tensor.status()),
              AllOf(HasSubstr("'labels.npz'"), HasSubstr("80 75 3 4"), HasSubstr("IDX")));
}

TEST(ParseIdxTest, RankAndTypeAreChecked) {
  const auto with = [](int type, int rank) {
    return ParseIdx(Bytes({0, 0, type, rank}) + std::string(2000, '\0'), "f").status().code();
  };
  EXPECT_EQ(with(0x08, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with(0x08, 17), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with(0x08, 255), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with(0x0A, 1), absl::StatusCode::kInvalidArgument);
}

// 2^32 x 2^32 x ... samples in a file of a few bytes: refused before anything is allocated.
TEST(ParseIdxTest, HugeDimensionsAreRefusedByTheFilesSize) {
  const std::string dim = Bytes({255, 255, 255, 255});
  const auto truncated = ParseIdx(Bytes({0, 0, 0x0E, 1}) + dim + "12345678", "f");
  EXPECT_EQ(truncated.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(truncated.status()), HasSubstr("4294967295 x 8 bytes"));
  const auto overflowing = ParseIdx(Bytes({0, 0, 0x0E, 3}) + dim + dim + dim, "f");
  EXPECT_EQ(overflowing.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(overflowing.status()), HasSubstr("data file 'f'"));
}

TEST(ParseIdxTest, NoSamplesIsATensorWithoutElements) {
  EXPECT_EQ(Text(ParseIdx(Bytes({0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 5}), "f")), "uint8[0,5]{}");
}

TEST(ParseNpyTest, ReadsEveryElementType) {
  const auto one = [](const std::string& descr, const std::vector<int>& element) {
    return Text(ParseNpy(Npy(NpyHeader(descr, "(1,)"), Bytes(element)), "f"));
  };
  EXPECT_EQ(one("|b1", {1}), "bool[1]{true}");
  EXPECT_EQ(one("|i1", {0xff}), "int8[1]{-1}");
  EXPECT_EQ(one("|u1", {0xff}), "uint8[1]{255}");
  EXPECT_EQ(one("<i2", {2, 1}), "int16[1]{258}");
  EXPECT_EQ(one("<u2", {0xff, 0xff}), "uint16[1]{65535}");
  EXPECT_EQ(one("<i4", {4, 3, 2, 1}), "int32[1]{16909060}");
  EXPECT_EQ(one("<u4", {0, 0, 0, 0x80}), "uint32[1]{2147483648}");
  EXPECT_EQ(one("<i8", {0, 0, 0, 0, 1, 0, 0, 0}), "int64[1]{4294967296}");
  EXPECT_EQ(one("<u8", {0, 0, 0, 0, 1, 0, 0, 0}), "uint64[1]{4294967296}");
  EXPECT_EQ(one("<f2", {0x00, 0x3e}), "float16[1]{1.5}");
  EXPECT_EQ(one("<f4", {0, 0, 0x20, 0xc0}), "float32[1]{-2.5}");
  EXPECT_EQ(one("<f8", {0, 0, 0, 0, 0, 0, 0xf8, 0x3f}), "float64[1]{1.5}");
}

TEST(ParseNpyTest, BigEndianElementsAreSwapped) {
  EXPECT_EQ(Text(ParseNpy(Npy(NpyHeader(">i2", "(2,)"), Bytes({1, 2, 0, 7})), "f")),
            "int16[2]{258, 7}");
  EXPECT_EQ(Text(ParseNpy(Npy(NpyHeader(">f4", "(1,)"), Bytes({0xc0, 0x20, 0, 0})), "f")),
            "float32[1]{-2.5}");
}

TEST(ParseNpyTest, ReadsScalarsAndMatrices) {
  EXPECT_EQ(Text(ParseNpy(Npy(NpyHeader("|u1", "()"), "\x07"), "f")), "uint8[]{7}");
  EXPECT_EQ(Text(ParseNpy(Npy(NpyHeader("|u1", "(2, 1)"), "\x07\x08"), "f")), "uint8[2,1]{7, 8}");
}

TEST(ParseNpyTest, ReadsVersionTwoWithItsLongerLength) {
  const std::string header = NpyHeader("|u1", "(1,)");
  const std::string file =
      Bytes({0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, static_cast<int>(header.size()), 0, 0, 0}) +
      header + "\x05";
  EXPECT_EQ(Text(ParseNpy(file, "f")), "uint8[1]{5}");
}

TEST(ParseNpyTest, TruncatedAnywhereIsAnErrorNamingTheFile) {
  for (size_t size = 0; size < SmallNpy().size(); ++size) {
    const auto tensor = ParseNpy(SmallNpy().substr(0, size), "labels.npy");
    ASSERT_FALSE(tensor.ok()) << size;
    EXPECT_EQ(tensor.status().code(),
              size < 6 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kDataLoss)
        << size;
    EXPECT_THAT(Message(tensor.status()), HasSubstr("data file 'labels.npy'")) << size;
  }
}

TEST(ParseNpyTest, BytesAfterTheEndAreAnError) {
  const auto tensor = ParseNpy(SmallNpy() + "a", "f");
  EXPECT_EQ(tensor.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(tensor.status()), HasSubstr("1 bytes too many"));
}

TEST(ParseNpyTest, UnknownVersionIsNotCalledTruncated) {
  std::string file = SmallNpy();
  file[6] = 9;
  const auto tensor = ParseNpy(file, "f");
  EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(tensor.status()), HasSubstr("version 9"));
}

TEST(ParseNpyTest, FortranOrderSaysWhatToDo) {
  const auto tensor =
      ParseNpy(Npy("{'descr': '|u1', 'fortran_order': True, 'shape': (1, 1), }\n", "\x05"), "f");
  EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(tensor.status()), HasSubstr("numpy.ascontiguousarray"));
}

TEST(ParseNpyTest, OtherElementTypesAreNamed) {
  for (const std::string descr : {"<c8", "|O", "<U12", "<M8", "|S3", "<f3"}) {
    const auto tensor = ParseNpy(Npy(NpyHeader(descr, "(1,)"), std::string(8, '\0')), "f");
    EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument) << descr;
  }
  EXPECT_THAT(Message(ParseNpy(Npy(NpyHeader("<c8", "(1,)"), "12345678"), "f").status()),
              HasSubstr("element type '<c8' is not supported"));
}

TEST(ParseNpyTest, StructuredTypesAreRefused) {
  const auto tensor = ParseNpy(
      Npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", "1234"), "f");
  EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ParseNpyTest, HeadersWithoutAFieldAreRefused) {
  for (const std::string header :
       {"", "{}", "{'descr': '<f4', 'shape': (1,)}", "{'descr': '<f4', 'fortran_order': False}",
        "{'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, "
        "'shape': (1"}) {
    const auto tensor = ParseNpy(Npy(header + std::string(8, ' '), "1234"), "f");
    EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument) << header;
    EXPECT_THAT(Message(tensor.status()), HasSubstr("lacks descr, fortran_order or shape"))
        << header;
  }
}

TEST(ParseNpyTest, ShapesThatAreNoneAreRefused) {
  for (const std::string shape :
       {"(-1,)", "(99999999999999999999,)", "(a,)", "(1.5,)", "(1099511627777,)",
        "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,)", "(1000000000, 1000000000, 1000000000)"}) {
    const auto tensor = ParseNpy(Npy(NpyHeader("|u1", shape), "\x05"), "data.npy");
    EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument) << shape;
    EXPECT_THAT(Message(tensor.status()), HasSubstr("data file 'data.npy'")) << shape;
  }
}

TEST(ParseNpyTest, ABoolIsZeroOrOne) {
  const auto tensor = ParseNpy(Npy(NpyHeader("|b1", "(2,)"), Bytes({1, 2})), "f");
  EXPECT_EQ(tensor.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(tensor.status()), HasSubstr("neither 0 nor 1"));
}

TEST(GunzipTest, UnpacksWhatGzipPacked) {
  const std::string text(3 << 20, 'x');
  const auto unpacked = GunzipToMemory(Gzip(text), "f");
  ASSERT_TRUE(unpacked.ok()) << unpacked.status();
  EXPECT_TRUE(*unpacked == text);
}

TEST(GunzipTest, SeveralMembersFollowEachOther) {
  const auto unpacked = GunzipToMemory(Gzip("one, ") + Gzip("") + Gzip("two"), "f");
  ASSERT_TRUE(unpacked.ok()) << unpacked.status();
  EXPECT_EQ(*unpacked, "one, two");
}

TEST(GunzipTest, TruncatedAnywhereIsDataLoss) {
  const std::string packed = Gzip("some text that is packed");
  for (size_t size = 0; size < packed.size(); ++size) {
    const auto unpacked = GunzipToMemory(packed.substr(0, size), "images.gz");
    EXPECT_EQ(unpacked.status().code(), absl::StatusCode::kDataLoss) << size;
    EXPECT_THAT(Message(unpacked.status()),
                AllOf(HasSubstr("'images.gz'"), HasSubstr("fetch the file again")))
        << size;
  }
}

TEST(GunzipTest, AChangedByteIsFoundByTheChecksum) {
  std::string packed = Gzip(std::string(100, 'x'));
  packed[packed.size() - 6] ^= 1;  // of the checksum itself
  EXPECT_EQ(GunzipToMemory(packed, "f").status().code(), absl::StatusCode::kDataLoss);
}

TEST(GunzipTest, AFileThatUnpacksToMoreThanTheLimitIsRefused) {
  const std::string packed = Gzip(std::string(10 << 20, '\0'));
  ASSERT_LT(packed.size(), 20000u);
  const auto unpacked = GunzipToMemory(packed, "bomb.gz", /*max_bytes=*/4 << 20);
  EXPECT_EQ(unpacked.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(unpacked.status()),
              AllOf(HasSubstr("'bomb.gz'"), HasSubstr("more than 4194304 bytes")));
}

// Two kilobytes that claimed 4 elements were unpacked to gigabytes before anybody counted.
TEST(ReadDataFileTest, NoMoreIsUnpackedThanTheHeaderSays) {
  testing::FakeFileSystem files;
  for (const std::string& whole : {SmallIdx(), SmallNpy()}) {
    // A second gzip member that is damaged at its end, which only who reads so far can tell.
    std::string rest = Gzip(std::string(64 << 20, '\0'));
    rest[rest.size() - 6] ^= 1;
    ASSERT_TRUE(files.WriteFileAtomically("/bomb", Gzip(whole) + rest).ok());
    const auto tensor = ReadDataFile(files, "/bomb");
    EXPECT_EQ(tensor.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(
        Message(tensor.status()),
        AllOf(HasSubstr("'/bomb'"), HasSubstr(absl::StrCat("more bytes than the ", whole.size(),
                                                           " that its header says"))));
  }
}

TEST(ReadDataFileTest, TellsTheFormatFromTheContents) {
  testing::FakeFileSystem files;
  ASSERT_TRUE(files.WriteFileAtomically("/a", SmallIdx()).ok());
  ASSERT_TRUE(files.WriteFileAtomically("/b", Gzip(SmallIdx())).ok());
  ASSERT_TRUE(files.WriteFileAtomically("/c", SmallNpy()).ok());
  ASSERT_TRUE(files.WriteFileAtomically("/d", Gzip(SmallNpy())).ok());
  EXPECT_EQ(Text(ReadDataFile(files, "/a")), "uint8[2,2]{1, 2, 3, 250}");
  EXPECT_EQ(Text(ReadDataFile(files, "/b")), "uint8[2,2]{1, 2, 3, 250}");
  EXPECT_EQ(Text(ReadDataFile(files, "/c")), "int16[3]{1, -1, 256}");
  EXPECT_EQ(Text(ReadDataFile(files, "/d")), "int16[3]{1, -1, 256}");
}

TEST(ReadDataFileTest, AMissingFileIsNamed) {
  testing::FakeFileSystem files;
  const auto tensor = ReadDataFile(files, "/no/images.gz");
  EXPECT_EQ(tensor.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(tensor.status()), HasSubstr("/no/images.gz"));
}

TEST(ReadDataFileTest, AnEmptyFileIsTruncated) {
  testing::FakeFileSystem files;
  ASSERT_TRUE(files.WriteFileAtomically("/empty", "").ok());
  EXPECT_EQ(ReadDataFile(files, "/empty").status().code(), absl::StatusCode::kDataLoss);
}

TEST(ToNpyTest, WritesWhatNumpyWrites) {
  const auto file = ToNpy(Tensor::Of<float>({2}, {1.0f, -2.5f}));
  ASSERT_TRUE(file.ok()) << file.status();
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  header.resize(117, ' ');
  EXPECT_EQ(*file, Npy(header + "\n", Bytes({0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0})));
}

// The length of the header decides the padding; the elements start at a multiple of 64.
TEST(ToNpyTest, ElementsAreAligned) {
  for (int rank = 0; rank <= 16; ++rank) {
    const Tensor tensor = Tensor::Of<uint8_t>(Shape(std::vector<int64_t>(rank, 1)), {42});
    const auto file = ToNpy(tensor);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->size() % 64, 1u) << rank;
    EXPECT_EQ((*file)[file->size() - 2], '\n') << rank;
    EXPECT_EQ(Text(ParseNpy(*file, "f")), tensor.ToString());
  }
}

template <typename T>
void ExpectRoundTrip() {
  const T values[] = {std::numeric_limits<T>::lowest(), std::numeric_limits<T>::max()};
  const Tensor tensor = Tensor::Of<T>({1, 2}, std::span<const T>(values));
  const auto file = ToNpy(tensor);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto back = ParseNpy(*file, "f");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(BitwiseEqual(*back, tensor)) << back->ToString();
}

TEST(ToNpyTest, ReadsBackEveryType) {
  ExpectRoundTrip<float>();
  ExpectRoundTrip<double>();
  ExpectRoundTrip<int8_t>();
  ExpectRoundTrip<int16_t>();
  ExpectRoundTrip<int32_t>();
  ExpectRoundTrip<int64_t>();
  ExpectRoundTrip<uint8_t>();
  ExpectRoundTrip<uint16_t>();
  ExpectRoundTrip<uint32_t>();
  ExpectRoundTrip<uint64_t>();
  ExpectRoundTrip<bool>();
}

TEST(ToNpyTest, TypesThatNumpyLacksAreNamed) {
  const auto file = ToNpy(Tensor::Of<Bfloat16>({1}, {Bfloat16{0}}));
  EXPECT_EQ(file.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Message(file.status()), HasSubstr("bfloat16"));
}

}  // namespace
}  // namespace weft
