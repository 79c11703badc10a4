// The table of docs/training.md is what the declarations of ops/defs/optimizer say.
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "ops/defs/optimizer/optimizer.h"

namespace weft::testing {
namespace {

// The rows of the first table with this head.
std::vector<std::string> RowsBelow(const std::string& path, const std::string& head) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::vector<std::string> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (inside && !absl::StartsWith(line, "|")) break;
    if (inside && !absl::StartsWith(line, "|---")) rows.push_back(line);
    inside |= line == head;
  }
  return rows;
}

std::string RowOf(const OptimizerKind& kind) {
  const std::string options =
      absl::StrJoin(kind.options, ", ", [](std::string* text, const OptimizerOption& option) {
        absl::StrAppend(text, "`", option.name, "`");
        if (!option.is_switch) absl::StrAppend(text, " ", option.usual);
      });
  return absl::StrCat("| `", kind.name, "` | ", kind.help, " | ", kind.learning_rate, " | ",
                      options, " |");
}

TEST(OptimizerTable, TheDocumentIsThatOfThisBuild) {
  std::vector<std::string> expected;
  for (const OptimizerKind* const kind : AllOptimizers()) expected.push_back(RowOf(*kind));
  ASSERT_GE(expected.size(), 12u);
  EXPECT_EQ(absl::StrJoin(RowsBelow("docs/training.md",
                                    "| optimizer | what it does | usual learning rate | options |"),
                          "\n"),
            absl::StrJoin(expected, "\n"));
}

}  // namespace
}  // namespace weft::testing
