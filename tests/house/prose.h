// Sentences of documents and how long they are, for the test that keeps the pages short to read.
#ifndef WEFT_TESTS_HOUSE_PROSE_H_
#define WEFT_TESTS_HOUSE_PROSE_H_

#include <string>
#include <string_view>
#include <vector>

namespace weft::testing {

struct Sentence {
  int line = 0;  // where it begins, from 1
  std::string text;
  int words = 0;
};

// The sentences of a Markdown page. Code blocks, tables and headings are no sentences; a list item
// ends one even without a full stop. A span of `code` is one word.
std::vector<Sentence> MarkdownSentences(std::string_view page);

// The sentences of plain text, such as the help text of a flag; all of them on line 1.
std::vector<Sentence> TextSentences(std::string_view text);

// Mean number of words of a sentence; 0 without sentences.
double MeanWords(const std::vector<Sentence>& sentences);

}  // namespace weft::testing

#endif  // WEFT_TESTS_HOUSE_PROSE_H_
