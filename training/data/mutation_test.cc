// Files that are cut off or changed anywhere end in values or an error, never in a crash or a hang.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"
#include "training/data/testing/exercise_column.h"

namespace weft {
namespace {

constexpr char kCorpus[] = "training/data/testing/corpus";
// Places tried in a file; the longer ones are mostly alike.
constexpr size_t kMaxPlaces = 600;

TEST(MutationTest, EveryFileOfTheCorpusCutAndChanged) {
  const auto names = RealFileSystem().ListDirectory(kCorpus);
  ASSERT_TRUE(names.ok()) << names.status();
  ASSERT_GE(names->size(), 15u);
  int runs = 0;
  for (const std::string& name : *names) {
    const auto bytes = RealFileSystem().ReadFile(absl::StrCat(kCorpus, "/", name));
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    testing::ExerciseColumn(*bytes);
    const size_t stride = bytes->size() / kMaxPlaces + 1;
    for (size_t at = 0; at < bytes->size(); at += stride) {
      testing::ExerciseColumn(bytes->substr(0, at));
      for (const char change : {'\x01', '\x80', '\xff'}) {
        std::string changed = *bytes;
        changed[at] = static_cast<char>(changed[at] ^ change);
        testing::ExerciseColumn(changed);
        ++runs;
      }
    }
  }
  EXPECT_GT(runs, 5000);
}

}  // namespace
}  // namespace weft
