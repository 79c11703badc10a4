#include "onnx_import/codec/quote.h"

#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(Quoted, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(Quoted("a\x1b[2J\n\x7f"), "'a\\x1b[2J\\n\\x7f'");
  EXPECT_EQ(Quoted("\xc2\x9b"), "'\\xc2\\x9b'");  // U+009B, the one-byte escape sequence
}

TEST(Quoted, KeepsLettersOfAllLanguages) { EXPECT_EQ(Quoted("Größe/重み"), "'Größe/重み'"); }

TEST(Quoted, EscapesQuotesAndBrokenUtf8) {
  EXPECT_EQ(Quoted("it's\\"), "'it\\'s\\\\'");
  EXPECT_EQ(Quoted("\xff\xe2\x82"), "'\\xff\\xe2\\x82'");
}

TEST(Quoted, EndsLongNamesEarlyButNotPaths) {
  const std::string name(200, 'n');
  EXPECT_EQ(Quoted(name), "'" + std::string(120, 'n') + "...'");
  EXPECT_EQ(QuotedPath(name), "'" + name + "'");
}

TEST(Printable, KeepsCodeAndEscapesOnlyWhatIsUnprintable) {
  const absl::Status status = Printable(absl::NotFoundError("no 'x\n'"));
  EXPECT_EQ(status, absl::NotFoundError("no 'x\\n'"));
  EXPECT_TRUE(Printable(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace weft
