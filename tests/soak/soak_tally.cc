#include "tests/soak/soak_tally.h"

#include <cstddef>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace weft::testing {
namespace {

constexpr char kRowFormat[] = "%-26s%10d%8d%8d%9d%8d%8d%9d%7d%7d\n";

}  // namespace

FaultSchedule SoakTally::ScheduleOf(int seed) {
  const std::vector<FaultRow>& rows = FaultRows();
  return DrawSchedule(seed, &rows[static_cast<size_t>(seed) % rows.size()]);
}

void SoakTally::Count(const SoakOutcome& outcome, bool has_struck, KindEnds& ends) {
  ++ends.schedules;
  if (!outcome.complaints.empty()) ++ends.wrong;
  if (!has_struck) return;
  ++ends.struck;
  if (outcome.from_copies > 0) ++ends.copies;
  if (outcome.joins > 0) ++ends.joined;
  if (!outcome.error.empty()) {
    ++ends.ended;
  } else if (outcome.stopped) {
    ++ends.stopped;
  } else if (outcome.losses > 0) {
    ++ends.went_on;
  } else {
    ++ends.whole;
  }
}

void SoakTally::Add(const FaultSchedule& schedule, const SoakOutcome& outcome) {
  ++schedules_;
  if (!outcome.complaints.empty()) ++wrong_;
  if (outcome.from_copies > 0 && outcome.error.empty()) ++from_copies_;
  std::set<std::string> names;
  for (const SoakFault& fault : schedule.faults) names.insert(fault.row->name);
  for (const std::string& name : names) {
    Count(outcome, outcome.struck.contains(name), kinds_[name]);
  }
  Count(outcome, !outcome.struck.empty(),
        meshes_[absl::StrCat(schedule.mesh.ToString(), " zero=", schedule.zero)]);
}

int SoakTally::struck(const std::string& row) const {
  const auto found = kinds_.find(row);
  return found == kinds_.end() ? 0 : found->second.struck;
}

int SoakTally::went_on(const std::string& row) const {
  const auto found = kinds_.find(row);
  return found == kinds_.end() ? 0 : found->second.went_on;
}

std::string SoakTally::Text() const {
  std::string text =
      absl::StrFormat("%-26s%10s%8s%8s%9s%8s%8s%9s%7s%7s\n", "fault", "schedules", "struck",
                      "whole", "went on", "copies", "joined", "stopped", "ended", "wrong");
  const auto add = [&text](const std::string& name, const KindEnds& ends) {
    absl::StrAppendFormat(&text, kRowFormat, name, ends.schedules, ends.struck, ends.whole,
                          ends.went_on, ends.copies, ends.joined, ends.stopped, ends.ended,
                          ends.wrong);
  };
  for (const FaultRow& row : FaultRows()) {
    const auto found = kinds_.find(row.name);
    add(row.name, found == kinds_.end() ? KindEnds() : found->second);
  }
  for (const auto& [mesh, ends] : meshes_) add(mesh, ends);
  absl::StrAppend(&text, schedules_, " schedules, ", wrong_, " of them wrong, ", from_copies_,
                  " at their end after copies made a loss good\n");
  return text;
}

std::string ComplaintText(const FaultSchedule& schedule, const SoakOutcome& outcome) {
  return absl::StrCat(DescribeSchedule(schedule), "\n  ", absl::StrJoin(outcome.complaints, "\n  "),
                      "\n  error: ", outcome.error,
                      "\nagain: bazel run //tests/soak:soak -- --first-seed ", schedule.seed,
                      " --schedules 1 --verbose\n");
}

}  // namespace weft::testing
