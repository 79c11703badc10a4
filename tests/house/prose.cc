#include "tests/house/prose.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace weft::testing {
namespace {

bool IsWordPart(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLower(char c) { return c >= 'a' && c <= 'z'; }

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

int CountWords(const std::string& text) {
  std::istringstream tokens(text);
  int words = 0;
  for (std::string token; tokens >> token;) {
    words += std::any_of(token.begin(), token.end(), IsWordPart);
  }
  return words;
}

// Spans of code and the targets of links become one word each, without stops.
std::string WithoutCode(std::string_view text) {
  std::string result;
  bool is_code = false;
  for (const char c : text) {
    if (c == '`') {
      if (!is_code) result += "code";
      is_code = !is_code;
    } else if (!is_code) {
      result += c;
    }
  }
  return result;
}

// Where a sentence ends: a stop, perhaps a closing bracket or quote, then a space and something
// that can begin a sentence. A short form such as "e.g." is followed by a lower-case letter.
bool EndsAt(std::string_view text, size_t i) {
  if (text[i] != '.' && text[i] != '?' && text[i] != '!') return false;
  size_t next = i + 1;
  while (next < text.size() &&
         std::string_view(")\"'*_").find(text[next]) != std::string_view::npos)
    ++next;
  if (next == text.size()) return true;
  if (text[next] != ' ') return false;
  while (next < text.size() && !IsWordPart(text[next]) && text[next] != '-') ++next;
  if (next == text.size()) return true;
  return !IsLower(text[next]) || text.substr(next).starts_with("code");
}

// The sentences of one paragraph without line ends.
void AddSentences(int line, std::string_view paragraph, std::vector<Sentence>& sentences) {
  const std::string text = WithoutCode(paragraph);
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!EndsAt(text, i) && i + 1 < text.size()) continue;
    const std::string sentence = Trimmed(text.substr(begin, i + 1 - begin));
    const int words = CountWords(sentence);
    if (words > 0) sentences.push_back({line, sentence, words});
    begin = i + 1;
  }
}

// Removes the mark of a list item ("* ", "- ", "7. "); false if there is none.
bool TakeListMark(std::string& line) {
  size_t digits = 0;
  while (digits < line.size() && IsDigit(line[digits])) ++digits;
  const bool is_numbered = digits > 0 && line.compare(digits, 2, ". ") == 0;
  if (!is_numbered && !line.starts_with("* ") && !line.starts_with("- ")) return false;
  line.erase(0, digits + 2);
  return true;
}

}  // namespace

std::vector<Sentence> MarkdownSentences(std::string_view page) {
  std::vector<Sentence> sentences;
  std::string paragraph;
  int number = 0;
  int begin = 0;
  bool is_code = false;
  const auto end_paragraph = [&] {
    AddSentences(begin, paragraph, sentences);
    paragraph.clear();
  };
  std::istringstream lines{std::string(page)};
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line = Trimmed(line);
    if (line.starts_with("```")) {
      is_code = !is_code;
      end_paragraph();
      continue;
    }
    if (is_code) continue;
    const bool is_item = TakeListMark(line);
    if (is_item || line.empty() || line[0] == '#' || line[0] == '|') end_paragraph();
    if (line.empty() || line[0] == '#' || line[0] == '|') continue;
    if (paragraph.empty()) begin = number;
    paragraph += (paragraph.empty() ? "" : " ") + line;
  }
  end_paragraph();
  return sentences;
}

std::vector<Sentence> TextSentences(std::string_view text) {
  std::vector<Sentence> sentences;
  AddSentences(1, text, sentences);
  return sentences;
}

double MeanWords(const std::vector<Sentence>& sentences) {
  int words = 0;
  for (const Sentence& sentence : sentences) words += sentence.words;
  return sentences.empty() ? 0 : static_cast<double>(words) / static_cast<double>(sentences.size());
}

}  // namespace weft::testing
