// What `train` leaves: programs when it begins, and when its steps are done files, a report, a line
// in the run history.
#ifndef WEFT_TOOLS_JOBS_TRAINING_RESULTS_H_
#define WEFT_TOOLS_JOBS_TRAINING_RESULTS_H_

#include <string>

#include "absl/status/status.h"
#include "distributed/coordinator.h"
#include "placement/cost/run_history.h"
#include "platform/file_system.h"
#include "tools/console/console.h"
#include "tools/flags/train_flags.h"
#include "tools/jobs/job_loop.h"
#include "tools/jobs/trained_model.h"
#include "tools/jobs/training_run.h"
#include "training/job/job_spec.h"
#include "training/job/trainer.h"

namespace weft {

// Whether the files that a run leaves, `best` (of --best) among them, can be written: so that a run
// that cannot keep its result ends before it begins. Leaves nothing behind. Errors carry kDisk.
absl::Status CheckOutputs(FileSystem& files, const ResultFiles& wanted, const std::string& best);

// Writes what each worker has compiled of the job, FOLDER/worker-0.train-128.txt ("" = nowhere).
// Errors of files carry kDisk.
absl::Status SaveProgramTexts(FileSystem& files, const std::string& folder, const PreparedJob& job,
                              Coordinator& coordinator);

// Writes the gradients, the model, the one with averages and the adapters, as far as they are
// wanted; notes of the exporter go to the console. Errors carry kDisk.
absl::Status SaveResults(FileSystem& files, const ResultFiles& wanted, const TrainedModel& model,
                         const TrainResult& result, Console& console);

// Appends a line to the history of runs at `path` ("" = there is none); nothing for a run without
// steps that count. Errors carry kDisk.
absl::Status AppendToHistory(FileSystem& files, const std::string& path,
                             const RunHistoryEntry& entry);

// Prints what came of the run and which files it wrote, as text or as JSON, to standard output.
void ReportResults(const TrainingRun& run, const JobLoop& loop, const ResultFiles& files, bool json,
                   Console& console);

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_TRAINING_RESULTS_H_
