#include "training/records/record_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "training/records/crc32c.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(Crc32cTest, ValuesOfRfc3720) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending, descending;
  for (int i = 0; i < 32; ++i) {
    ascending.push_back(static_cast<char>(i));
    descending.push_back(static_cast<char>(31 - i));
  }
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c(descending), 0x113fdb5cu);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(Crc32cTest, EveryLengthGivesWhatSingleBitsGive) {
  std::string bytes;
  for (int i = 0; i < 40; ++i) {
    uint32_t crc = 0xffffffff;
    for (const char byte : bytes) {
      crc ^= static_cast<unsigned char>(byte);
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
    }
    EXPECT_EQ(Crc32c(bytes), ~crc) << i;
    bytes.push_back(static_cast<char>(i * 37 + 11));
  }
}

// The bytes by a script that shares nothing with ours.
TEST(FrameRecordTest, HasLengthChecksumPayloadChecksum) {
  const std::string record = FrameRecord(std::string("\x0a\x02", 2));
  ASSERT_EQ(record.size(), 18u);
  EXPECT_EQ(record.substr(0, 8), std::string("\x02\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(8, 4), "\x78\x27\x0b\x34");
  EXPECT_EQ(record.substr(12, 2), "\x0a\x02");
  EXPECT_EQ(record.substr(14), "\xef\x3e\x6a\x8b");
}

TEST(FindRecordsTest, FindsWhatWasFramed) {
  const std::string file = FrameRecord("one") + FrameRecord("") + FrameRecord("three");
  const auto places = FindRecords(file, "f");
  ASSERT_TRUE(places.ok()) << places.status();
  ASSERT_EQ(places->size(), 3u);
  EXPECT_EQ(*ReadRecord(file, (*places)[0], "f"), "one");
  EXPECT_EQ(*ReadRecord(file, (*places)[1], "f"), "");
  EXPECT_EQ(*ReadRecord(file, (*places)[2], "f"), "three");
  EXPECT_TRUE(FindRecords("", "f")->empty());
}

TEST(FindRecordsTest, TruncatedAnywhereIsDataLossNamingTheRecord) {
  const std::string file = FrameRecord("one") + FrameRecord("two");
  for (size_t size = 1; size < file.size(); ++size) {
    if (size == file.size() / 2) continue;  // one whole record
    const auto places = FindRecords(file.substr(0, size), "f.tfrecord");
    EXPECT_EQ(places.status().code(), absl::StatusCode::kDataLoss) << size;
    EXPECT_THAT(std::string(places.status().message()),
                HasSubstr(size < file.size() / 2 ? "record 0 at byte 0" : "record 1 at byte 19"))
        << size;
  }
}

TEST(FindRecordsTest, EveryChangedByteIsFound) {
  const std::string file = FrameRecord("one") + FrameRecord("two");
  for (size_t i = 0; i < file.size(); ++i) {
    std::string changed = file;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    const auto places = FindRecords(changed, "f");
    bool found = !places.ok();
    for (size_t k = 0; !found && k < places->size(); ++k) {
      found = !ReadRecord(changed, (*places)[k], "f").ok();
    }
    EXPECT_TRUE(found) << i;
  }
}

TEST(FindRecordsTest, AHugeLengthWithARightChecksumIsTruncation) {
  const std::string length("\xff\xff\xff\xff\xff\xff\xff\x7f", 8);
  std::string file = length;
  const uint32_t checksum = MaskedCrc32c(length);
  for (int shift = 0; shift < 32; shift += 8) file.push_back(static_cast<char>(checksum >> shift));
  const auto places = FindRecords(file + std::string(100, 'x'), "f");
  EXPECT_THAT(std::string(places.status().message()), HasSubstr("truncated: record 0"));
}

TEST(FindRecordsTest, OtherFilesAreToldApart) {
  EXPECT_THAT(std::string(FindRecords("PK\x03\x04 and more bytes", "f").status().message()),
              HasSubstr("is no TFRecord file"));
  EXPECT_THAT(std::string(FindRecords("\x1f\x8b\x08 and more bytes", "f").status().message()),
              HasSubstr("packed with gzip; unpack it"));
}

}  // namespace
}  // namespace weft
