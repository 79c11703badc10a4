// docs/attacks.md names a test for each attack, and the test is where the page says.
#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr size_t kFewestAttacks = 60;

// A row of the page: a file, and the name of a test or of a row in it.
using NamedTest = std::pair<std::string, std::string>;

// The tests of all rows of a page's tables. Rows of another form come back in `others`.
std::vector<NamedTest> NamedTests(const std::string& page, std::vector<std::string>& others) {
  static const std::regex row(R"(\| [^|]+ \| [^|]+ \| `([^`:]+): ([^`]+)` \|)");
  std::vector<NamedTest> tests;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '|') continue;
    if (line == "| attack | what happens | test |" || line == "|---|---|---|") continue;
    std::smatch match;
    if (std::regex_match(line, match, row)) {
      tests.emplace_back(match[1], match[2]);
    } else {
      others.push_back(line);
    }
  }
  return tests;
}

// Whether the text of a test has one of this name: "Suite.Test", the quoted name of a row, or, in a
// script, these words.
bool HasTest(const std::string& file, const std::string& text, const std::string& name) {
  static const std::regex test_name(R"((\w+)\.(\w+))");
  std::smatch match;
  if (std::regex_match(name, match, test_name)) {
    const std::regex declaration("TEST(_F|_P)?\\(\\s*" + match[1].str() + ",\\s*" + match[2].str() +
                                 "\\)");
    return std::regex_search(text, declaration);
  }
  if (file.ends_with(".sh")) return text.find(name) != std::string::npos;
  return text.find("\"" + name + "\"") != std::string::npos;
}

TEST(AttackTable, RowsAreRead) {
  std::vector<std::string> others;
  EXPECT_THAT(NamedTests("| attack | what happens | test |\n|---|---|---|\n"
                         "| one | `Error`, here | `a/b_test.cc: Suite.Test` |\ntext\n"
                         "| two | nothing | `c.sh: some words` |\n| three | nothing | none |\n",
                         others),
              ElementsAre(Pair("a/b_test.cc", "Suite.Test"), Pair("c.sh", "some words")));
  EXPECT_THAT(others, ElementsAre("| three | nothing | none |"));
}

TEST(AttackTable, TestsAreFoundByTheirNames) {
  const std::string text = "TEST_F(Suite,\n       Test) {\n  Try(\"Row\");\n}\n";
  EXPECT_TRUE(HasTest("a_test.cc", text, "Suite.Test"));
  EXPECT_FALSE(HasTest("a_test.cc", text, "Suite.Tes"));
  EXPECT_FALSE(HasTest("a_test.cc", text, "Suit.Test"));
  EXPECT_TRUE(HasTest("a_test.cc", text, "Row"));
  EXPECT_FALSE(HasTest("a_test.cc", text, "Ro"));
  EXPECT_TRUE(HasTest("a.sh", "grep -q \"two words\"", "two words"));
}

TEST(AttackTable, EachAttackHasATest) {
  const std::filesystem::path root = std::filesystem::canonical("WORKSPACE").parent_path();
  const auto read = [&root](const std::string& path) {
    const auto text = RealFileSystem().ReadFile((root / path).string());
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  };
  std::vector<std::string> others;
  const std::vector<NamedTest> tests = NamedTests(read("docs/attacks.md"), others);
  EXPECT_THAT(others, IsEmpty()) << "rows are | attack | what happens | `FILE: NAME` |";
  EXPECT_GE(std::set<NamedTest>(tests.begin(), tests.end()).size(), kFewestAttacks);
  std::map<std::string, std::string> texts;
  for (const auto& [file, name] : tests) {
    if (!texts.contains(file)) texts[file] = read(file);
    EXPECT_TRUE(HasTest(file, texts[file], name)) << file << " has no test or row " << name;
  }
}

}  // namespace
}  // namespace weft::testing
