// The language of the project: short sentences in documents and help texts, the terms of the
// glossary, and no name that was replaced.
#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"
#include "tests/house/prose.h"
#include "tests/house/replaced_names.h"
#include "tools/command_line/command_line.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kMaxMeanWords = 18;
constexpr int kMaxWords = 40;

std::vector<int> WordsOf(const std::vector<Sentence>& sentences) {
  std::vector<int> words;
  for (const Sentence& sentence : sentences) words.push_back(sentence.words);
  return words;
}

// -- The counting itself, on texts that were counted by hand.

TEST(Prose, CountsSentencesOfAParagraph) {
  EXPECT_THAT(WordsOf(MarkdownSentences("One two three. Four five?\nSix (seven) eight - nine!")),
              ElementsAre(3, 2, 4));
}

TEST(Prose, CodeIsOneWordAndItsStopsEndNothing) {
  EXPECT_THAT(WordsOf(MarkdownSentences("Run `a b. C d` now. `x.h` is next, e.g. for you.")),
              ElementsAre(3, 6));
}

TEST(Prose, CodeBlocksTablesAndHeadingsAreNoSentences) {
  const std::string page =
      "# A heading of many words\n\nText before:\n\n```\nnot. counted. at all.\n```\n\n"
      "| a | table |\n|---|---|\n| one. | two. |\n\nText after.\n";
  const std::vector<Sentence> sentences = MarkdownSentences(page);
  EXPECT_THAT(WordsOf(sentences), ElementsAre(2, 2));
  EXPECT_EQ(sentences[1].line, 13);
}

TEST(Prose, EachListItemEndsASentence) {
  EXPECT_THAT(WordsOf(MarkdownSentences("Of these:\n- one item\n  that goes on\n* two\n12. a b c")),
              ElementsAre(2, 5, 1, 3));
}

TEST(Prose, NumbersAndShortFormsDoNotEndASentence) {
  EXPECT_THAT(WordsOf(TextSentences("at most 0.5 of it, i.e. half (default 2.0). Then more")),
              ElementsAre(9, 2));
}

TEST(Prose, TheMeanIsOverAllSentences) {
  EXPECT_DOUBLE_EQ(MeanWords(TextSentences("One two. Three four five six.")), 3);
  EXPECT_DOUBLE_EQ(MeanWords({}), 0);
}

TEST(ReplacedNames, AreFoundAsIdentifiersPrefixesAndPhrases) {
  const std::vector<ReplacedName> names = {
      {"old_name", "new_name", {}},
      {"kMost*", "kMax...", {}},
      {"reduction: ring", "reduction: unordered", {"reader.cc"}}};
  EXPECT_THAT(FindReplacedNames("a.cc", "int old_name;\nint kMostRanks, my_old_name;\n", names),
              ElementsAre("a.cc:1: 'old_name' is called 'new_name' now",
                          "a.cc:2: 'kMostRanks' is called 'kMax...' now"));
  EXPECT_THAT(FindReplacedNames("plan.md", "reduction: ring", names),
              ElementsAre("plan.md:1: 'reduction: ring' is called 'reduction: unordered' now"));
  EXPECT_THAT(FindReplacedNames("reader.cc", "reduction: ring", names), IsEmpty());
}

// "AllReduceIsPlayedWhereItStands" and "movable_" outlived a search for whole names.
TEST(ReplacedNames, AreFoundAsWordsInsideIdentifiers) {
  const std::vector<ReplacedName> names = {{"*lent*", "borrowed"}};
  EXPECT_THAT(FindReplacedNames("a.cc", "RunLent(is_lent_, kLent);\n// What is lent.\n", names),
              ElementsAre("a.cc:1: 'RunLent' is called 'borrowed' now",
                          "a.cc:1: 'is_lent_' is called 'borrowed' now",
                          "a.cc:1: 'kLent' is called 'borrowed' now",
                          "a.cc:2: 'lent' is called 'borrowed' now"));
  EXPECT_THAT(FindReplacedNames("a.cc", "Silent, SILENT, YamlEntry, Lentils, talent_pool", names),
              IsEmpty());
}

TEST(ReplacedNames, OfCodeMayStandInCommentsTextsAndDocuments) {
  const std::vector<ReplacedName> names = {{"most", "max_...", {}, {}, true}};
  const std::string source =
      "// At most.\n"
      "int a = 1'000 + most; /* the most\n"
      "most */ f(\"the \\\" most\", '\"', most);\n"
      "g(R\"x(most \" most)x\" + most, almost, most_of);\n";
  EXPECT_THAT(FindReplacedNames("a.cc", source, names),
              ElementsAre("a.cc:2: 'most' is called 'max_...' now",
                          "a.cc:3: 'most' is called 'max_...' now",
                          "a.cc:4: 'most' is called 'max_...' now"));
  EXPECT_THAT(FindReplacedNames("a.md", "at most", names), IsEmpty());
}

// -- Help texts.

TEST(Help, IsInShortSentences) {
  std::vector<Sentence> all;
  for (const auto& command : AllCommands()) {
    CLI::App app;
    command->AddOptions(app);
    std::vector<std::string> texts = {command->summary()};
    for (const CLI::Option* option : app.get_options()) texts.push_back(option->get_description());
    for (const std::string& text : texts) {
      for (const Sentence& sentence : TextSentences(text)) {
        EXPECT_LE(sentence.words, kMaxWords) << command->name() << ": " << sentence.text;
        all.push_back(sentence);
      }
    }
  }
  EXPECT_GT(all.size(), 300u);
  EXPECT_LE(MeanWords(all), kMaxMeanWords);
  RecordProperty("mean_words", std::to_string(MeanWords(all)));
}

// -- The tree.

class Tree : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::canonical("WORKSPACE").parent_path();
    ASSERT_TRUE(std::filesystem::exists(root_ / ".bazelrc")) << root_;
    for (const auto& top : std::filesystem::directory_iterator(root_)) {
      const std::string name = top.path().filename().string();
      if (top.is_regular_file()) files_.insert(name);
      if (!top.is_directory() || top.is_symlink() || name[0] == '.') continue;
      if (name == "build" || name == "runs") continue;
      for (const auto& entry : std::filesystem::recursive_directory_iterator(top.path())) {
        if (entry.is_regular_file()) {
          files_.insert(entry.path().lexically_relative(root_).string());
        }
      }
    }
    ASSERT_GT(files_.size(), 1000u);
  }

  std::string Read(const std::string& path) const {
    absl::StatusOr<std::string> text = RealFileSystem().ReadFile((root_ / path).string());
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }

  std::vector<std::string> Documents() const {
    std::vector<std::string> documents;
    for (const std::string& path : files_) {
      if (path.ends_with(".md")) documents.push_back(path);
    }
    return documents;
  }

  std::filesystem::path root_;
  std::set<std::string> files_;
};

TEST_F(Tree, DocumentsAreInShortSentences) {
  for (const std::string& path : Documents()) {
    const std::vector<Sentence> sentences = MarkdownSentences(Read(path));
    EXPECT_LE(MeanWords(sentences), kMaxMeanWords) << path;
    for (const Sentence& sentence : sentences) {
      EXPECT_LE(sentence.words, kMaxWords) << path << ":" << sentence.line << ": " << sentence.text;
    }
  }
}

TEST_F(Tree, TheGlossaryNamesAHeaderForEachTerm) {
  const std::regex row("\n\\| ([^|`]+) \\| [^|]+ \\| `([a-z0-9_/]+\\.h)` \\|");
  const std::string glossary = Read("docs/glossary.md");
  std::vector<std::string> terms;
  for (std::sregex_iterator it(glossary.begin(), glossary.end(), row), end; it != end; ++it) {
    terms.push_back((*it)[1]);
    EXPECT_TRUE(files_.contains((*it)[2])) << terms.back() << ": there is no " << (*it)[2];
  }
  EXPECT_GE(terms.size(), 40u);
  const auto rows = std::count(glossary.begin(), glossary.end(), '\n');
  EXPECT_GE(static_cast<int>(terms.size()) + 8, rows) << "a row has another form";
  EXPECT_TRUE(std::is_sorted(terms.begin(), terms.end(), [](std::string a, std::string b) {
    const auto lower = [](std::string& text) {
      std::transform(text.begin(), text.end(), text.begin(), ::tolower);
    };
    lower(a);
    lower(b);
    return a < b;
  })) << "terms are in alphabetical order";
}

TEST_F(Tree, TheReadmeLinksTheGlossary) {
  const std::string readme = Read("README.md");
  std::smatch link;
  ASSERT_TRUE(std::regex_search(readme, link, std::regex("\\]\\((docs/glossary\\.md)\\)")));
  EXPECT_TRUE(files_.contains(link[1]));
}

TEST_F(Tree, LawsThatAreCitedNameTheirList) {
  const std::regex citation("//[^\n]*\\b[Ll]aw [0-9]+([^0-9]{0,20})");
  int seen = 0;
  for (const std::string& path : files_) {
    if (!path.ends_with(".cc") && !path.ends_with(".h") && !path.ends_with(".cu")) continue;
    if (path.ends_with("_test.cc")) continue;
    const std::string text = Read(path);
    if (text.find("aw ") == std::string::npos) continue;
    for (std::sregex_iterator it(text.begin(), text.end(), citation), end; it != end; ++it) {
      const std::string after = (*it)[1];
      ++seen;
      EXPECT_TRUE(std::regex_search(after, std::regex("^\\s+(// )?of\\s")))
          << path << ": '" << it->str() << "': say of which document the law is";
    }
  }
  EXPECT_GT(seen, 8);
}

TEST_F(Tree, ReplacedNamesAreGone) {
  std::vector<std::string> found;
  int scripts = 0;  // without an extension: tools/demo, tools/test
  for (const std::string& path : files_) {
    const std::string extension = std::filesystem::path(path).extension().string();
    static const std::set<std::string> kinds = {".cc", ".h",     ".cu",    ".cuh", ".md",
                                                ".sh", ".proto", ".bazel", ".py",  ".yaml"};
    if (path.starts_with("third_party/")) continue;
    const bool is_script = extension.empty() && Read(path).starts_with("#!");
    scripts += is_script;
    if (!kinds.contains(extension) && !is_script) continue;
    // The table and its test.
    if (path.starts_with("tests/house/replaced_names.") || path == "tests/house/words_test.cc")
      continue;
    for (std::string& use : FindReplacedNames(path, Read(path), ReplacedNames())) {
      found.push_back(std::move(use));
    }
  }
  EXPECT_THAT(found, IsEmpty());
  EXPECT_GE(scripts, 4);
}

// The types that a header defines, with their namespaces: "weft::lowered::Copy".
std::vector<std::string> DefinedTypes(const std::string& header) {
  const std::regex open("^namespace ([a-z_:]+) \\{");
  const std::regex close("^\\}  // namespace");
  const std::regex definition("^(?:class|struct|enum class) (?:[A-Z_]+ )?([A-Z]\\w*)[^;]*\\{");
  std::vector<std::string> spaces;
  std::vector<std::string> types;
  std::istringstream lines(header);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, open)) {
      spaces.push_back(match[1]);
    } else if (std::regex_search(line, close) && !spaces.empty()) {
      spaces.pop_back();
    } else if (std::regex_search(line, match, definition)) {
      std::string name;
      for (const std::string& space : spaces) name += space + "::";
      types.push_back(name + match[1].str());
    }
  }
  return types;
}

TEST(DefinedTypes, AreThoseOfTheNamespacesAroundThem) {
  EXPECT_THAT(DefinedTypes("namespace a {\nclass B;\nclass C final : public D {\n};\n"
                           "namespace e {\nstruct F {\n}  // no namespace\n}  // namespace e\n"
                           "enum class G : int {\n"),
              ElementsAre("a::C", "a::e::F", "a::G"));
}

// Two types of one name in one program are undefined behaviour, and no compiler says so.
TEST_F(Tree, NoTwoHeadersDefineATypeOfOneName) {
  std::map<std::string, std::string> header_of;
  for (const std::string& path : files_) {
    if (!path.ends_with(".h") || path.starts_with("third_party/")) continue;
    for (const std::string& type : DefinedTypes(Read(path))) {
      const std::string& first = header_of.emplace(type, path).first->second;
      EXPECT_EQ(first, path) << "both define " << type;
    }
  }
  EXPECT_GT(header_of.size(), 300u);
}

}  // namespace
}  // namespace weft::testing
