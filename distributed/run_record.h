// RunRecord: how far a rank has come in its newest run of steps, and what it answers after a loss.
#ifndef WEFT_DISTRIBUTED_RUN_RECORD_H_
#define WEFT_DISTRIBUTED_RUN_RECORD_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/recovery/step_progress.h"
#include "distributed/step_report.h"
#include "executor/program/step_program.h"

namespace weft {

// Kept by a worker (`name`, for errors: "worker:1"). Borrows the programs that it is told of, until
// ForgetProgram. Not synchronized: one thread calls it.
class RunRecord {
 public:
  // The rank has joined a job, and has run nothing in it. Whether the reports of its newest steps
  // are kept (kKeptReports). `goes_on`: with the state of the job before; what is said of that
  // (note, noted_steps, NotedReports) stays true until steps run.
  void Join(bool keeps_reports, bool goes_on);
  // RunSteps was called; with StepRange::note, where that is not empty.
  void BeginRun(const std::map<std::string, double>& note);
  // The following steps run this program; null: they change no variable, and leave nothing half
  // done.
  void BeginRange(StepProgram* program) { under_way_ = program; }
  // The program of the newest step is no more.
  void ForgetProgram() { under_way_ = nullptr; }
  // The step of this number, as its program counts, begins. Where its report goes: one of those
  // that are kept, or `other`.
  StepReport& BeginStep(int64_t step, StepReport& other);
  void EndStep();

  // Calls of RunSteps since it joined.
  int64_t runs() const { return runs_; }
  StepProgress Progress() const;
  // Finishes the step that it has lost its peers in. FailedPrecondition where none has run.
  absl::StatusOr<StepReport> Finish(const std::string& name);
  // Of the newest run from the `first`-th step on: those that are kept by now.
  std::vector<StepReport> Reports(int64_t first) const { return ReportsOf(first, steps_in_run_); }
  // The newest note; the steps of its run that are done, and their reports.
  const std::map<std::string, double>& note() const { return note_; }
  int64_t noted_steps() const { return noted_steps_; }
  std::vector<StepReport> NotedReports(int64_t first) const {
    return ReportsOf(first, noted_steps_);
  }
  // FailedPrecondition where the newest step was lost within its updates.
  absl::Status CheckWhole(const std::string& name) const;

 private:
  // They take turns, so that the memory of their values serves again.
  StepReport& NextReport(StepReport& other);
  // From the `first`-th step on of a run that has done so many.
  std::vector<StepReport> ReportsOf(int64_t first, int64_t steps) const;
  // One more step of the newest run is done.
  void CountStep();

  bool keeps_reports_ = false;
  int64_t runs_ = 0;                      // calls of RunSteps since it joined
  int64_t steps_in_run_ = 0;              // done, of the newest of them
  int64_t step_under_way_ = 0;            // its number, as its program counts
  bool is_noted_ = false;                 // whether that has a note
  std::map<std::string, double> note_;    // of the newest run that has one
  int64_t noted_steps_ = 0;               // done, of that
  StepProgram* under_way_ = nullptr;      // ran the newest step
  std::vector<StepReport> last_reports_;  // the n-th of the run at n mod kKeptReports
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_RUN_RECORD_H_
