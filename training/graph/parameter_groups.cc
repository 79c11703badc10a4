#include "training/graph/parameter_groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

absl::Status CheckPatterns(const char* what, const std::map<std::string, double>& numbers,
                           const std::vector<std::string>& parameters) {
  for (const auto& [pattern, number] : numbers) {
    if (!(number >= 0 && number < 1e6)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the ", what, " of '", pattern, "' is ", number, ", expected a number in [0, 1000000)"));
    }
    const bool fits = std::any_of(parameters.begin(), parameters.end(),
                                  [&pattern = pattern](const std::string& name) {
                                    return name == pattern || MatchesPattern(pattern, name);
                                  });
    if (fits) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "'", pattern, "' was given a ", what, ", but no parameter that trains has this name",
        DidYouMean(pattern, parameters), "; `graph_runner inspect` lists them"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckParameterGroups(const ParameterGroups& groups,
                                  const std::vector<std::string>& parameters) {
  WEFT_RETURN_IF_ERROR(CheckPatterns("learning rate", groups.learning_rates, parameters));
  return CheckPatterns("weight decay", groups.weight_decays, parameters);
}

OptimizerSpec OptimizerOf(const std::string& parameter, int rank, const OptimizerSpec& optimizer,
                          const ParameterGroups& groups) {
  OptimizerSpec own = optimizer;
  if (const auto* rate = FindEntry(groups.learning_rates, parameter)) {
    own.learning_rate = rate->second;
  }
  if (const auto* decay = FindEntry(groups.weight_decays, parameter)) {
    own.weight_decay = decay->second;
  } else if (!groups.decay_vectors && rank <= 1) {
    own.weight_decay = 0;
  }
  return own;
}

}  // namespace weft
