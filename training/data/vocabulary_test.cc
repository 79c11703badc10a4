#include "training/data/vocabulary.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

std::string Encoded(const absl::StatusOr<Vocabulary>& vocabulary, const std::string& text) {
  if (!vocabulary.ok()) return std::string(vocabulary.status().message());
  const auto tokens = vocabulary->Encode(text, "t.txt");
  return tokens.ok() ? tokens->ToString() : std::string(tokens.status().message());
}

std::string EncodedByFile(const std::string& file, const std::string& text) {
  return Encoded(Vocabulary::Parse(file, "v.txt"), text);
}

TEST(VocabularyTest, CharactersAreNumberedByTheirCodes) {
  EXPECT_EQ(Encoded(Vocabulary::OfCharacters("hello\n", "t.txt"), "\nhelo"),
            "uint16[5]{0, 2, 1, 3, 4}");
}

TEST(VocabularyTest, ACharacterMayHaveSeveralBytes) {
  // U+0061 < U+00E9 < U+20AC < U+1F600
  const std::string text = "\xf0\x9f\x98\x80\xe2\x82\xac\xc3\xa9\x61";
  EXPECT_EQ(Encoded(Vocabulary::OfCharacters(text, "t.txt"), text), "uint16[4]{3, 2, 1, 0}");
}

TEST(VocabularyTest, WhatIsNoUtf8IsNamedByItsByte) {
  // A stray continuation, overlong, a surrogate, beyond U+10FFFF, cut off.
  for (const std::string bad : {"\x80", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                                "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) {
    const auto vocabulary = Vocabulary::OfCharacters("ab" + bad, "t.txt");
    ASSERT_FALSE(vocabulary.ok());
    EXPECT_THAT(std::string(vocabulary.status().message()),
                HasSubstr("data file 't.txt': byte 2 ("));
  }
}

TEST(VocabularyTest, TheLongestTokenWins) {
  EXPECT_EQ(EncodedByFile("a\nb\nab\nabc\n", "abcaba"), "uint16[3]{3, 2, 0}");
}

TEST(VocabularyTest, EscapesStandForWhatALineCannotHold) {
  EXPECT_EQ(EncodedByFile("\\n\n\\s\r\n\\\\\n\\t\nx", "x \n\\\t"), "uint16[5]{4, 1, 0, 2, 3}");
}

TEST(VocabularyTest, TheUnknownTokenStandsForOneCharacter) {
  EXPECT_EQ(EncodedByFile("a\n<unk>\n", "a\xc3\xa9z"), "uint16[3]{0, 1, 1}");
}

TEST(VocabularyTest, WithoutItTheByteIsNamed) {
  EXPECT_EQ(EncodedByFile("a\n", "aaz!"),
            "data file 't.txt': no token of the vocabulary fits at byte 2: 'z!'");
}

TEST(VocabularyTest, BadFilesAreNamedByTheirLine) {
  EXPECT_EQ(EncodedByFile("a\nb\na\n", ""), "data file 'v.txt': line 3 repeats the token 'a'");
  EXPECT_THAT(EncodedByFile("a\n\nb\n", ""), HasSubstr("line 2 is a token of 0 bytes"));
  EXPECT_THAT(EncodedByFile("a\n\\q\n", ""), HasSubstr("line 2 has a backslash"));
  EXPECT_THAT(EncodedByFile("a\n\\", ""), HasSubstr("line 2 has a backslash"));
  EXPECT_THAT(EncodedByFile(std::string(257, 'a'), ""), HasSubstr("line 1 is a token of 257"));
  EXPECT_EQ(EncodedByFile("", ""), "data file 'v.txt': has no tokens");
}

TEST(VocabularyTest, MoreThan65536TokensTakeFourBytes) {
  std::string file;
  for (int i = 0; i <= 65536; ++i) file += "<" + std::to_string(i) + ">\n";
  EXPECT_EQ(EncodedByFile(file, "<65536><0>"), "uint32[2]{65536, 0}");
}

}  // namespace
}  // namespace weft
