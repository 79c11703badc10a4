// JSON that enters is looked at before it is parsed: whoever parses calls CheckJsonLimits, too.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Says of a source of the product that it parses more texts than it looks at.
std::vector<std::string> CheckParsers(const std::string& path, const std::string& text) {
  const int parsed = CountOf(text, "Json::parse(") + CountOf(text, "json::parse(") +
                     CountOf(text, "sax_parse(") + CountOf(text, "json::accept(");
  const int checked = CountOf(text, "CheckJsonLimits(");
  if (parsed <= checked) return {};
  return {absl::StrCat(path, ": parses JSON ", parsed, " times, and calls CheckJsonLimits ",
                       checked, " times (platform/text/json_limits.h)")};
}

TEST(CheckParsersTest, WantsALookForEachParser) {
  EXPECT_THAT(CheckParsers("x.cc", "CheckJsonLimits(a); Json::parse(a);"), IsEmpty());
  EXPECT_THAT(CheckParsers("x.cc", "nlohmann::json::parse(a);"),
              ElementsAre("x.cc: parses JSON 1 times, and calls CheckJsonLimits 0 times "
                          "(platform/text/json_limits.h)"));
  EXPECT_THAT(CheckParsers("x.cc", "CheckJsonLimits(a); Json::parse(a); Json::parse(b);"),
              ::testing::SizeIs(1));
}

bool IsOfTheProduct(const std::string& path) {
  return absl::EndsWith(path, ".cc") && !absl::EndsWith(path, "_test.cc") &&
         !absl::StrContains(path, "/testing/") && !absl::StartsWith(path, "tests/");
}

TEST(Parsers, OfTheTreeLookAtWhatTheyParse) {
  const std::filesystem::path root = std::filesystem::canonical("WORKSPACE").parent_path();
  // It parses what it has just made itself.
  const std::string own = "tools/jobs/job_loop.cc";
  int parsers = 0;
  for (const char* const folder : {"distributed", "executor", "graph", "onnx_import", "ops",
                                   "placement", "platform", "tensor", "tools", "training"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string path = std::filesystem::relative(entry.path(), root).string();
      if (!entry.is_regular_file() || !IsOfTheProduct(path) || path == own) continue;
      const auto text = RealFileSystem().ReadFile(entry.path().string());
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_THAT(CheckParsers(path, *text), IsEmpty());
      parsers += CountOf(*text, "son::parse(");
    }
  }
  EXPECT_GE(parsers, 8);
}

}  // namespace
}  // namespace weft::testing
