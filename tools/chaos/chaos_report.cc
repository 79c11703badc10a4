#include "tools/chaos/chaos_report.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/console/console.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongestSaid = 160;  // characters of a line of the job

std::string SecondsText(const std::optional<double>& seconds) {
  return seconds.has_value() ? absl::StrFormat("%.2f s", *seconds) : "-";
}

std::string FaultLine(const StruckFault& struck) {
  std::string text = absl::StrFormat(
      "  %-18s %7s %9s  %-22s %8s", FaultText(struck.fault),
      struck.has_struck ? absl::StrCat(struck.step) : "-",
      struck.has_struck ? absl::StrFormat("%.2f s", struck.seconds) : "-",
      struck.target.empty() ? "-" : struck.target, SecondsText(struck.next_step_seconds));
  if (!struck.has_struck) {
    absl::StrAppend(&text, "  did not come",
                    struck.note.empty() ? absl::StrCat(" before step ", struck.fault.step)
                                        : absl::StrCat(": ", struck.note));
  } else if (!struck.note.empty()) {
    absl::StrAppend(&text, "  ", struck.note);
  }
  absl::StrAppend(&text, "\n");
  for (const std::string& line : struck.said) {
    absl::StrAppend(&text, "      ", Printable(line.substr(0, kLongestSaid)),
                    line.size() > kLongestSaid ? " ..." : "", "\n");
  }
  return text;
}

}  // namespace

std::string ChaosRunText(const ChaosOutcome& outcome, const std::string& again) {
  std::string text = absl::StrFormat(
      "seed %d: %s after %.1f s: %d steps, %s; %s\n", outcome.schedule.seed,
      outcome.complaints.empty() ? "held" : "DID NOT HOLD", outcome.seconds, outcome.steps,
      outcome.exits.empty() ? "it did not end" : absl::StrJoin(outcome.exits, ", "),
      outcome.result.sha256.empty() ? "no model" : absl::StrCat("sha256 ", outcome.result.sha256));
  absl::StrAppendFormat(&text, "  %-18s %7s %9s  %-22s %8s\n", "fault", "at step", "after", "to",
                        "next step");
  for (const StruckFault& struck : outcome.faults) absl::StrAppend(&text, FaultLine(struck));
  for (const std::string& complaint : outcome.complaints) {
    absl::StrAppend(&text, "  WRONG: ", Printable(complaint), "\n");
  }
  if (!outcome.complaints.empty()) absl::StrAppend(&text, "  again: ", again, "\n");
  return text;
}

Json ChaosRunJson(const ChaosOutcome& outcome, const std::string& again) {
  Json faults = Json::array();
  for (const StruckFault& struck : outcome.faults) {
    Json fault = {{"fault", RowOf(struck.fault.kind).name},
                  {"wanted_step", struck.fault.step},
                  {"lasts_seconds", struck.fault.seconds},
                  {"struck", struck.has_struck},
                  {"step", struck.step},
                  {"seconds", struck.seconds},
                  {"target", struck.target},
                  {"said", struck.said},
                  {"next_step_seconds", nullptr},
                  {"note", struck.note}};
    if (struck.next_step_seconds.has_value())
      fault["next_step_seconds"] = *struck.next_step_seconds;
    faults.push_back(std::move(fault));
  }
  Json json = {{"seed", outcome.schedule.seed},   {"held", outcome.complaints.empty()},
               {"faults", std::move(faults)},     {"exits", outcome.exits},
               {"steps", outcome.steps},          {"seconds", outcome.seconds},
               {"sha256", outcome.result.sha256}, {"last_loss", nullptr},
               {"hung", outcome.has_hung},        {"orphans", outcome.orphans},
               {"complaints", outcome.complaints}};
  double loss = 0;
  if (!outcome.result.losses.empty() &&
      absl::SimpleAtod(outcome.result.losses.rbegin()->second, &loss)) {
    json["last_loss"] = loss;
  }
  if (!outcome.complaints.empty()) json["again"] = again;
  return json;
}

std::string ChaosSummaryText(const std::vector<ChaosOutcome>& outcomes) {
  struct KindTally {
    int drawn = 0;
    int struck = 0;
    std::vector<double> next_steps;
  };
  std::map<FaultKind, KindTally> tallies;
  int held = 0;
  int hung = 0;
  int orphans = 0;
  for (const ChaosOutcome& outcome : outcomes) {
    held += outcome.complaints.empty() ? 1 : 0;
    hung += outcome.has_hung ? 1 : 0;
    orphans += outcome.orphans;
    for (const StruckFault& struck : outcome.faults) {
      KindTally& tally = tallies[struck.fault.kind];
      ++tally.drawn;
      tally.struck += struck.has_struck ? 1 : 0;
      if (struck.next_step_seconds.has_value()) {
        tally.next_steps.push_back(*struck.next_step_seconds);
      }
    }
  }
  std::string text = absl::StrFormat("%-12s %6s %7s  %s\n", "fault", "drawn", "struck",
                                     "next step: median, largest");
  for (auto& [kind, tally] : tallies) {
    std::sort(tally.next_steps.begin(), tally.next_steps.end());
    const bool any = !tally.next_steps.empty();
    absl::StrAppendFormat(
        &text, "%-12s %6d %7d  %s\n", RowOf(kind).name, tally.drawn, tally.struck,
        any ? absl::StrFormat("%.2f s, %.2f s", tally.next_steps[tally.next_steps.size() / 2],
                              tally.next_steps.back())
            : "-");
  }
  absl::StrAppendFormat(&text, "%d of %d schedules held; %d hung, %d processes were left\n", held,
                        outcomes.size(), hung, orphans);
  return text;
}

}  // namespace weft
