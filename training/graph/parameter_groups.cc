#include "training/graph/parameter_groups.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "onnx_import/parameters/variable_names.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

absl::Status CheckPatterns(const char* what, const std::map<std::string, double>& numbers,
                           const std::vector<const Variable*>& parameters) {
  for (const auto& [pattern, number] : numbers) {
    if (!(number >= 0 && number < 1e6)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the ", what, " of '", pattern, "' is ", number, ", expected a number in [0, 1000000)"));
    }
    const auto called = VariablesCalled(pattern, parameters);
    if (!called.ok()) return Annotate(called.status(), absl::StrCat("the ", what));
    if (!called->empty()) continue;
    std::vector<std::string> names;
    for (const Variable* const parameter : parameters) {
      for (std::string& name : NamesOf(*parameter)) names.push_back(std::move(name));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "'", pattern, "' was given a ", what, ", but no parameter that trains has this name",
        DidYouMean(pattern, names), "; `graph_runner inspect` lists them"));
  }
  return absl::OkStatus();
}

size_t LettersOf(const std::string& pattern) {
  return static_cast<size_t>(
      std::count_if(pattern.begin(), pattern.end(), [](char c) { return c != '*' && c != '?'; }));
}

// The number for a parameter; null where none of its names has one.
const double* NumberOf(const std::map<std::string, double>& numbers, const Variable& parameter) {
  const std::vector<std::string> names = NamesOf(parameter);
  const std::pair<const std::string, double>* best = nullptr;
  for (const std::string& name : names) {
    const auto exact = numbers.find(name);
    if (exact != numbers.end()) return &exact->second;
    const auto* const entry = FindEntry(numbers, name);
    const bool is_better =
        entry != nullptr && (best == nullptr || LettersOf(entry->first) > LettersOf(best->first));
    if (is_better) best = entry;
  }
  return best == nullptr ? nullptr : &best->second;
}

}  // namespace

absl::Status CheckParameterGroups(const ParameterGroups& groups,
                                  const std::vector<const Variable*>& parameters) {
  WEFT_RETURN_IF_ERROR(CheckPatterns("learning rate", groups.learning_rates, parameters));
  return CheckPatterns("weight decay", groups.weight_decays, parameters);
}

OptimizerSpec OptimizerOf(const Variable& parameter, int rank, const OptimizerSpec& optimizer,
                          const ParameterGroups& groups) {
  OptimizerSpec own = optimizer;
  if (const double* const rate = NumberOf(groups.learning_rates, parameter)) {
    own.learning_rate = *rate;
  }
  if (const double* const decay = NumberOf(groups.weight_decays, parameter)) {
    own.weight_decay = *decay;
  } else if (!groups.decay_vectors && rank <= 1) {
    own.weight_decay = 0;
  }
  return own;
}

}  // namespace weft
