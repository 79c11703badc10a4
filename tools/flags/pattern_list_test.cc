#include "tools/flags/pattern_list.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_file_system.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReadPatternList, ReadsFilesBetweenPatterns) {
  testing::FakeFileSystem files;
  ASSERT_TRUE(
      files
          .WriteFileAtomically("/frozen.txt",
                               "# the trunk\n  layer.0.*  \n\nlayer#1.*\r\nhead.bias  # for now\n")
          .ok());
  const auto patterns = ReadPatternList(files, "--freeze", {"a*", "@/frozen.txt", "b"});
  ASSERT_TRUE(patterns.ok()) << patterns.status();
  EXPECT_THAT(*patterns, ElementsAre("a*", "layer.0.*", "layer#1.*", "head.bias", "b"));
}

TEST(ReadPatternList, RefusesFilesWithoutPatterns) {
  testing::FakeFileSystem files;
  ASSERT_TRUE(files.WriteFileAtomically("/empty.txt", "# nothing\n").ok());
  EXPECT_EQ(ReadPatternList(files, "--freeze", {"@/empty.txt"}).status().message(),
            "--freeze @/empty.txt: the file has no pattern; expected one on each line");
  EXPECT_THAT(std::string(ReadPatternList(files, "--trainable", {"@/none"}).status().message()),
              HasSubstr("--trainable @/none"));
}

}  // namespace
}  // namespace weft
