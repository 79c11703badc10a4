#include "training/job/periodic_evaluation.h"

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Keys of the saved state.
constexpr char kBest[] = "best";
constexpr char kBestStep[] = "best_step";
constexpr char kSinceBest[] = "evaluations_since_best";

constexpr std::array<const char*, 5> kMoreIsBetter = {"accuracy", "top", "auc", "r2", "f1"};

}  // namespace

bool StopRule::Holds(double value) const {
  if (value == bound) return or_equal;
  return at_least ? value > bound : value < bound;
}

std::string StopRule::ToString() const {
  return absl::StrFormat("%s%s%s%.9g", metric, at_least ? ">" : "<", or_equal ? "=" : "", bound);
}

absl::StatusOr<StopRule> ParseStopRule(const std::string& text) {
  const size_t at = text.find_first_of("<>");
  StopRule rule;
  if (at != std::string::npos && at > 0) {
    rule.metric = text.substr(0, at);
    rule.at_least = text[at] == '>';
    rule.or_equal = at + 1 < text.size() && text[at + 1] == '=';
    const std::string bound = text.substr(at + (rule.or_equal ? 2 : 1));
    if (absl::SimpleAtod(bound, &rule.bound) && std::isfinite(rule.bound)) return rule;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no rule; expected METRIC>=NUMBER or METRIC<=NUMBER, like accuracy>=0.95"));
}

bool MoreIsBetter(const std::string& metric) {
  for (const char* name : kMoreIsBetter) {
    if (absl::StartsWith(metric, name)) return true;
  }
  return false;
}

PeriodicEvaluation::PeriodicEvaluation(const PreparedJob& evaluation,
                                       const EvaluationOptions& options, Listener listener)
    : evaluation_(evaluation), options_(options), listener_(std::move(listener)) {}

int64_t PeriodicEvaluation::NextCall(int64_t step) const {
  return (step / options_.every + 1) * options_.every;
}

absl::StatusOr<std::string> PeriodicEvaluation::Call(Coordinator& coordinator, int64_t step) {
  Measurement measured;
  measured.step = step;
  WEFT_ASSIGN_OR_RETURN(measured.metrics,
                        Evaluate(coordinator, evaluation_, [](const TrainProgress&) {}));
  const auto value = measured.metrics.find(options_.metric);
  if (value == measured.metrics.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the evaluation has no metric '", options_.metric, "'"));
  }
  const bool more = MoreIsBetter(options_.metric);
  const bool better =
      !best_.has_value() || (more ? value->second > *best_ : value->second < *best_);
  measured.is_best = better && std::isfinite(value->second);
  if (measured.is_best) {
    best_ = value->second;
    best_step_ = step;
  }
  since_best_ = measured.is_best ? 0 : since_best_ + 1;
  WEFT_RETURN_IF_ERROR(listener_(coordinator, measured));
  if (options_.until.has_value()) {
    const auto until = measured.metrics.find(options_.until->metric);
    if (until != measured.metrics.end() && options_.until->Holds(until->second)) {
      return absl::StrFormat("%s: it is %.6g", options_.until->ToString(), until->second);
    }
  }
  if (options_.patience > 0 && since_best_ >= options_.patience) {
    return absl::StrFormat("%s has not become better in %d evaluations", options_.metric,
                           since_best_);
  }
  return std::string();
}

void PeriodicEvaluation::SaveState(std::map<std::string, double>& state) const {
  if (!best_.has_value()) return;
  state[kBest] = *best_;
  state[kBestStep] = static_cast<double>(best_step_);
  state[kSinceBest] = static_cast<double>(since_best_);
}

void PeriodicEvaluation::LoadState(const std::map<std::string, double>& state) {
  const auto best = state.find(kBest), step = state.find(kBestStep), since = state.find(kSinceBest);
  if (best == state.end() || step == state.end() || since == state.end()) return;
  best_ = best->second;
  best_step_ = static_cast<int64_t>(step->second);
  since_best_ = static_cast<int64_t>(since->second);
}

}  // namespace weft
