#include "distributed/run_record.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/control_calls.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {

void RunRecord::Join(bool keeps_reports, bool goes_on) {
  keeps_reports_ = keeps_reports;
  runs_ = steps_in_run_ = 0;
  is_noted_ = false;
  under_way_ = nullptr;
  if (goes_on) return;
  note_.clear();
  noted_steps_ = 0;
  last_reports_.clear();
}

void RunRecord::BeginRun(const std::map<std::string, double>& note) {
  ++runs_;
  steps_in_run_ = 0;
  is_noted_ = !note.empty();
  if (!is_noted_) return;
  note_ = note;
  noted_steps_ = 0;
}

void RunRecord::CountStep() {
  ++steps_in_run_;
  if (is_noted_) noted_steps_ = steps_in_run_;
}

StepReport& RunRecord::BeginStep(int64_t step, StepReport& other) {
  step_under_way_ = step;
  return under_way_ != nullptr ? NextReport(other) : other;
}

void RunRecord::EndStep() {
  if (under_way_ != nullptr) CountStep();
}

StepReport& RunRecord::NextReport(StepReport& other) {
  if (!keeps_reports_) return other;
  const auto place = static_cast<size_t>(steps_in_run_ % kKeptReports);
  if (place >= last_reports_.size()) last_reports_.resize(place + 1);
  return last_reports_[place];
}

StepProgress RunRecord::Progress() const {
  StepProgress progress;
  progress.runs = runs_;
  progress.steps = steps_in_run_;
  if (under_way_ != nullptr) {
    progress.state = under_way_->state();
    progress.finishes_alone = under_way_->finishes_alone();
  }
  return progress;
}

absl::StatusOr<StepReport> RunRecord::Finish(const std::string& name) {
  if (under_way_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(name, " has run no step to finish"));
  }
  StepReport other;
  StepReport& done = NextReport(other);
  StepResult result;
  WEFT_RETURN_IF_ERROR(Annotate(under_way_->Finish(result), name));
  done = {};
  done.step = step_under_way_;
  done.values = std::move(result.reports);
  CountStep();
  return done;
}

std::vector<StepReport> RunRecord::ReportsOf(int64_t first, int64_t steps) const {
  std::vector<StepReport> reports;
  for (int64_t i = std::max(first, steps - kKeptReports); i < steps; ++i) {
    const auto place = static_cast<size_t>(i % kKeptReports);
    if (i >= 0 && place < last_reports_.size()) reports.push_back(last_reports_[place]);
  }
  return reports;
}

absl::Status RunRecord::CheckWhole(const std::string& name) const {
  if (under_way_ == nullptr || under_way_->state() != StepState::kTorn) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(name, " has lost its job within the updates of step ", step_under_way_ + 1,
                   ": its variables are neither those before the step nor those after it"));
}

}  // namespace weft
