#include "ops/defs/linear/einsum_equation.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr char kEllipsis[] = "...";

// How many letters a term has. InvalidArgument unless it is letters and at most one ellipsis.
absl::StatusOr<int> CountLetters(const std::string& term) {
  const size_t ellipsis = term.find(kEllipsis);
  std::string letters = term;
  if (ellipsis != std::string::npos) letters.erase(ellipsis, 3);
  for (const char c : letters) {
    if (absl::ascii_isalpha(static_cast<unsigned char>(c))) continue;
    return absl::InvalidArgumentError(absl::StrCat("the term '", term, "' of the equation has '",
                                                   std::string(1, c),
                                                   "', expected letters and at most one '...'"));
  }
  return static_cast<int>(letters.size());
}

// Numbers for letters, and for the axes of ellipses.
class Labels {
 public:
  explicit Labels(int ellipsis_rank) : ellipsis_rank_(ellipsis_rank), count_(ellipsis_rank) {}

  // The labels of a term whose ellipsis stands for `ellipsis_axes`; new letters get new numbers.
  std::vector<int> Read(const std::string& term, int ellipsis_axes) {
    std::vector<int> labels;
    for (size_t i = 0; i < term.size(); ++i) {
      if (term[i] == '.') {
        for (int d = 0; d < ellipsis_axes; ++d) {
          labels.push_back(ellipsis_rank_ - ellipsis_axes + d);
        }
        i += 2;
        continue;
      }
      const auto [found, is_new] = numbers_.try_emplace(term[i], count_);
      if (is_new) ++count_;
      labels.push_back(found->second);
    }
    return labels;
  }
  bool Knows(char letter) const { return numbers_.contains(letter); }
  int count() const { return count_; }

 private:
  int ellipsis_rank_;
  int count_;
  std::map<char, int> numbers_;
};

bool HasEllipsis(const std::string& term) { return term.find(kEllipsis) != std::string::npos; }

// The letters that occur once, in order, after the axes of the ellipses.
std::string ImplicitOutput(const std::vector<std::string>& terms) {
  std::map<char, int> occurrences;
  bool ellipsis = false;
  for (const std::string& term : terms) {
    ellipsis = ellipsis || HasEllipsis(term);
    for (const char c : term) {
      if (c != '.') ++occurrences[c];
    }
  }
  std::string output = ellipsis ? kEllipsis : "";
  for (const auto& [letter, count] : occurrences) {
    if (count == 1) output += letter;
  }
  return output;
}

absl::Status CheckOutput(const std::string& term, const Labels& labels) {
  WEFT_RETURN_IF_ERROR(CountLetters(term).status());
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] == '.') continue;
    if (!labels.Knows(term[i]) || term.find(term[i], i + 1) != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("the output '", term, "' of the equation has '", std::string(1, term[i]),
                       "'", labels.Knows(term[i]) ? " twice" : ", which no operand has"));
    }
  }
  return absl::OkStatus();
}

// Splits "a,b->c" into the operands' terms and, if there is one, the output's.
struct Sides {
  std::vector<std::string> operands;
  std::optional<std::string> output;
};
absl::StatusOr<Sides> SplitSides(const std::string& equation) {
  const std::string dense = absl::StrReplaceAll(equation, {{" ", ""}});
  const std::vector<std::string> sides = absl::StrSplit(dense, "->");
  if (sides.size() > 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("the equation '", equation, "' has more than one '->'"));
  }
  Sides result;
  result.operands = absl::StrSplit(sides[0], ',');
  if (sides.size() == 2) result.output = sides[1];
  return result;
}

}  // namespace

absl::StatusOr<EinsumEquation> EinsumEquation::Parse(const std::string& equation,
                                                     const std::vector<int>& ranks) {
  WEFT_ASSIGN_OR_RETURN(const Sides sides, SplitSides(equation));
  if (sides.operands.size() != ranks.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the equation '", equation, "' has ",
                                                   sides.operands.size(), " operands, the node ",
                                                   ranks.size()));
  }
  std::vector<int> ellipsis_axes;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::string& term = sides.operands[i];
    WEFT_ASSIGN_OR_RETURN(const int letters, CountLetters(term));
    const int rest = ranks[i] - letters;
    if (rest < 0 || (rest > 0 && !HasEllipsis(term))) {
      return absl::InvalidArgumentError(absl::StrCat("the term '", term, "' of the equation names ",
                                                     letters, " axes, but operand ", i, " has ",
                                                     ranks[i]));
    }
    ellipsis_axes.push_back(HasEllipsis(term) ? rest : 0);
  }
  const int ellipsis_rank = *std::max_element(ellipsis_axes.begin(), ellipsis_axes.end());
  Labels labels(ellipsis_rank);
  EinsumEquation result;
  for (size_t i = 0; i < ranks.size(); ++i) {
    result.operands.push_back(labels.Read(sides.operands[i], ellipsis_axes[i]));
  }
  result.operand_terms = sides.operands;
  result.output_term = sides.output.value_or(ImplicitOutput(sides.operands));
  WEFT_RETURN_IF_ERROR(CheckOutput(result.output_term, labels));
  result.output = labels.Read(result.output_term, ellipsis_rank);
  result.label_count = labels.count();
  return result;
}

}  // namespace weft
