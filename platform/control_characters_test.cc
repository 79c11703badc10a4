#include "platform/control_characters.h"

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(ControlCharactersTest, TextStaysAsItIs) {
  for (const std::string text :
       {"", "conv1.weight", "Größe 変数 \xf0\x9f\x8e\x89", "\xc2\xa0", "\\x1b"}) {
    EXPECT_EQ(EscapeControlCharacters(text), text);
  }
}

TEST(ControlCharactersTest, ControlsOfAsciiAreEscaped) {
  EXPECT_EQ(EscapeControlCharacters("a\x1b[31mred\x7f\n"), "a\\x1b[31mred\\x7f\\x0a");
  EXPECT_EQ(EscapeControlCharacters(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(EscapeControlCharacters("a\n\tb\r", "\n\t"), "a\n\tb\\x0d");
}

// U+009B begins a control sequence as ESC [ does, in UTF-8 and as a byte of its own.
TEST(ControlCharactersTest, C1ControlsAreEscaped) {
  EXPECT_EQ(EscapeControlCharacters("a\xc2\x9b"
                                    "31m"),
            "a\\xc2\\x9b31m");
  EXPECT_EQ(EscapeControlCharacters("a\x9b"
                                    "31m"),
            "a\\x9b31m");
  for (int c = 0x80; c < 0xa0; ++c) {
    const std::string text = {'\xc2', static_cast<char>(c)};
    EXPECT_EQ(EscapeControlCharacters(text).size(), 8u) << c;
  }
}

TEST(ControlCharactersTest, WhatTurnsTheTextAroundIsEscaped) {
  EXPECT_EQ(EscapeControlCharacters("a\xe2\x80\xaeza"), "a\\xe2\\x80\\xaeza");  // U+202E
  EXPECT_EQ(EscapeControlCharacters("a\xe2\x81\xa6z"), "a\\xe2\\x81\\xa6z");    // U+2066
  EXPECT_EQ(EscapeControlCharacters("a\xe2\x80\x93z"), "a\xe2\x80\x93z");       // a dash
}

// A decoder that is less strict could see a control in them.
TEST(ControlCharactersTest, BytesThatAreNoUtf8AreEscaped) {
  EXPECT_EQ(EscapeControlCharacters("\xc0\x9b"), "\\xc0\\x9b");           // overlong
  EXPECT_EQ(EscapeControlCharacters("\xe0\x82\x9b"), "\\xe0\\x82\\x9b");  // overlong
  EXPECT_EQ(EscapeControlCharacters("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(EscapeControlCharacters("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
  EXPECT_EQ(EscapeControlCharacters("\xe2\x80"), "\\xe2\\x80");  // cut off
  EXPECT_EQ(EscapeControlCharacters("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(EscapeControlCharacters("\xc3z"), "\\xc3z");
}

}  // namespace
}  // namespace weft
