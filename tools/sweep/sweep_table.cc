#include "tools/sweep/sweep_table.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/console/console.h"

namespace weft {
namespace {

constexpr size_t kMaxReason = 200;

std::string EndName(TrialEnd end) {
  switch (end) {
    case TrialEnd::kNotStarted:
      return "not started";
    case TrialEnd::kTrained:
      return "trained";
    case TrialEnd::kEndedEarly:
      return "ended early";
    case TrialEnd::kFailed:
      return "failed";
    case TrialEnd::kInterrupted:
      return "interrupted";
  }
  return "";
}

// One line, whatever the reason is.
std::string EndText(const TrialOutcome& outcome, bool is_best) {
  std::string text = absl::StrCat(EndName(outcome.end), is_best ? " (best)" : "");
  if (outcome.reason.empty()) return text;
  std::string reason = Printable(outcome.reason);
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  if (reason.size() > kMaxReason) reason = reason.substr(0, kMaxReason) + "...";
  return absl::StrCat(text, ": ", reason);
}

std::string NumberText(const std::optional<double>& number) {
  return number.has_value() ? absl::StrFormat("%.6g", *number) : "-";
}

// "loss", "eval accuracy".
std::string ScoreName(const SweepScore& score) {
  return absl::StrCat(score.evaluated ? "eval " : "", score.metric);
}

// Columns as wide as their widest cell, two spaces between them; the last one as it is.
std::string Aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      absl::StrAppend(&text, row[i], std::string(widths[i] - row[i].size() + 2, ' '));
    }
    absl::StrAppend(&text, row.back(), "\n");
  }
  return text;
}

nlohmann::ordered_json NumberJson(const std::optional<double>& number) {
  if (!number.has_value() || !std::isfinite(*number)) return nullptr;
  return *number;
}

nlohmann::ordered_json TrialJson(const SweepResult& result, size_t index) {
  const SweepTrial& trial = result.sweep.trials[index];
  const TrialOutcome& outcome = result.outcomes[index];
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (size_t i = 0; i < trial.values.size(); ++i) {
    values[result.sweep.axes[i].Name()] = trial.values[i];
  }
  nlohmann::ordered_json rungs = nlohmann::ordered_json::array();
  for (const double score : outcome.rungs) rungs.push_back(NumberJson(score));
  return {{"trial", index + 1},
          {"values", values},
          {"steps", outcome.steps},
          {"samples", outcome.samples},
          {"score", NumberJson(outcome.score)},
          {"rungs", rungs},
          {"last_loss", NumberJson(outcome.loss)},
          {"seconds", outcome.seconds},
          {"end", EndName(outcome.end)},
          {"reason", outcome.reason}};
}

}  // namespace

std::string SweepTableText(const SweepResult& result) {
  std::vector<std::string> names = {"trial"};
  for (const SweepAxis& axis : result.sweep.axes) names.push_back(Printable(axis.Name()));
  names.insert(names.end(), {"steps", "samples", ScoreName(result.score), "seconds", "end"});
  std::vector<std::vector<std::string>> rows = {names};
  for (size_t i = 0; i < result.outcomes.size(); ++i) {
    const TrialOutcome& outcome = result.outcomes[i];
    std::vector<std::string> row = {absl::StrCat(i + 1)};
    for (const std::string& value : result.sweep.trials[i].values) row.push_back(Printable(value));
    const bool started = outcome.end != TrialEnd::kNotStarted;
    row.insert(row.end(),
               {absl::StrCat(outcome.steps), absl::StrCat(outcome.samples),
                NumberText(outcome.score), started ? absl::StrFormat("%.1f", outcome.seconds) : "-",
                EndText(outcome, static_cast<int>(i) == result.best)});
    rows.push_back(std::move(row));
  }
  std::string text = Aligned(rows);
  if (result.best >= 0) {
    const auto best = static_cast<size_t>(result.best);
    absl::StrAppend(&text, "best  trial ", best + 1, ": ",
                    Printable(result.sweep.trials[best].text), "; ", ScoreName(result.score), " ",
                    NumberText(result.outcomes[best].score), "\n");
  }
  for (const std::string& file : result.files) absl::StrAppend(&text, Printable(file), "\n");
  return text;
}

nlohmann::ordered_json SweepTableJson(const SweepResult& result) {
  nlohmann::ordered_json trials = nlohmann::ordered_json::array();
  for (size_t i = 0; i < result.outcomes.size(); ++i) trials.push_back(TrialJson(result, i));
  nlohmann::ordered_json report;
  report["score"] = {{"metric", result.score.metric},
                     {"of", result.score.evaluated ? "evaluation" : "training"},
                     {"more_is_better", result.score.more_is_better}};
  report["trials"] = trials;
  report["best"] = nullptr;
  if (result.best >= 0) report["best"] = result.best + 1;
  report["files"] = result.files;
  return report;
}

}  // namespace weft
