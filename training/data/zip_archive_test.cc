#include "training/data/zip_archive.h"

#include <string>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// By Python's zipfile: a.txt, deflated, "hello" four times; b.txt, "x".
const std::string& TwoTexts() {
  static const auto* const kBytes = [] {
    auto* bytes = new std::string;
    absl::Base64Unescape(
        "UEsDBBQAAAAIAEOydV3jUT2NCgAAABcAAAAFAAAAYS50eHTLSM3JyVfIQCcBUEsDBBQAAAAIAEOydV2DFtyMAwAAAA"
        "EA"
        "AAAFAAAAYi50eHSrAABQSwECFAMUAAAACABDsnVd41E9jQoAAAAXAAAABQAAAAAAAAAAAAAAgAEAAAAAYS50eHRQSw"
        "EC"
        "FAMUAAAACABDsnVdgxbcjAMAAAABAAAABQAAAAAAAAAAAAAAgAEtAAAAYi50eHRQSwUGAAAAAAIAAgBmAAAAUwAAAA"
        "AA",
        bytes);
    return bytes;
  }();
  return *kBytes;
}

std::string Read(const std::string& bytes, const std::string& member,
                 size_t max_bytes = size_t{1} << 20) {
  const auto archive = ZipArchive::Open(bytes, "f.npz");
  if (!archive.ok()) return archive.status().ToString();
  const auto content = archive->Read(member, max_bytes);
  return content.ok() ? *content : content.status().ToString();
}

TEST(ZipArchiveTest, ReadsWhatPythonPacked) {
  const auto archive = ZipArchive::Open(TwoTexts(), "f.npz");
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_THAT(archive->MemberNames(), ElementsAre("a.txt", "b.txt"));
  EXPECT_EQ(Read(TwoTexts(), "a.txt"), "hello hello hello hello");
  EXPECT_EQ(Read(TwoTexts(), "b.txt"), "x");
}

TEST(ZipArchiveTest, AnUnknownMemberListsTheKnown) {
  EXPECT_THAT(Read(TwoTexts(), "c.txt"),
              AllOf(HasSubstr("NOT_FOUND"), HasSubstr("'f.npz' has no member 'c.txt'"),
                    HasSubstr("it has 2: a.txt, b.txt")));
}

TEST(ZipArchiveTest, TruncatedAnywhereIsAnError) {
  for (size_t size = 0; size < TwoTexts().size(); ++size) {
    const auto archive = ZipArchive::Open(TwoTexts().substr(0, size), "f.npz");
    ASSERT_FALSE(archive.ok()) << size;
    EXPECT_THAT(std::string(archive.status().message()), HasSubstr("data file 'f.npz'")) << size;
  }
}

// Every byte of an archive is either of no account or checked.
TEST(ZipArchiveTest, AChangedByteIsAnErrorOrChangesNothing) {
  for (size_t i = 0; i < TwoTexts().size(); ++i) {
    std::string bytes = TwoTexts();
    bytes[i] = static_cast<char>(bytes[i] ^ 0x55);
    const auto archive = ZipArchive::Open(bytes, "f.npz");
    const auto content = archive.ok() ? archive->Read("a.txt") : archive.status();
    if (content.ok()) {
      EXPECT_EQ(*content, "hello hello hello hello") << i;
    }
  }
}

TEST(ZipArchiveTest, AMemberThatUnpacksToTooMuchIsRefused) {
  EXPECT_THAT(Read(TwoTexts(), "a.txt", /*max_bytes=*/10),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("more than 10 bytes")));
}

// It was unpacked to its end before the sizes were compared.
TEST(ZipArchiveTest, NoMoreIsUnpackedThanTheDirectorySays) {
  std::string bytes = TwoTexts();
  bytes[bytes.find("PK\x01\x02") + 24] = 5;  // the unpacked size of a.txt, which is 23
  EXPECT_THAT(Read(bytes, "a.txt"),
              AllOf(HasSubstr("DATA_LOSS"), HasSubstr("more than the 5 bytes")));
}

TEST(ZipArchiveTest, ABeginningIsAsLongAsAskedFor) {
  const auto archive = ZipArchive::Open(TwoTexts(), "f.npz");
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_EQ(archive->ReadBeginning("a.txt", 7).value(), "hello h");
  EXPECT_EQ(archive->ReadBeginning("a.txt", 1000).value(), "hello hello hello hello");
  EXPECT_EQ(archive->ReadBeginning("b.txt", 1000).value(), "x");
}

TEST(ZipArchiveTest, WhatIsNoArchiveSaysSo) {
  EXPECT_THAT(Read("\x93NUMPY", "a"), HasSubstr("does not start with PK"));
  EXPECT_THAT(Read("", "a"), HasSubstr("does not start with PK"));
}

TEST(ZipArchiveTest, EncryptedAndOtherMethodsAreRefused) {
  // The flags and the method of the first entry of the directory.
  const size_t directory = TwoTexts().find("PK\x01\x02");
  std::string encrypted = TwoTexts();
  encrypted[directory + 8] = 1;
  EXPECT_THAT(Read(encrypted, "a.txt"), HasSubstr("'a.txt' is encrypted"));
  std::string packed = TwoTexts();
  packed[directory + 10] = 12;
  EXPECT_THAT(Read(packed, "a.txt"), HasSubstr("packed by method 12"));
}

}  // namespace
}  // namespace weft
