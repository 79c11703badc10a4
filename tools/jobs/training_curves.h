// TrainingCurves: the files that grow while a run lasts: --metrics and --tensorboard.
#ifndef WEFT_TOOLS_JOBS_TRAINING_CURVES_H_
#define WEFT_TOOLS_JOBS_TRAINING_CURVES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "tools/flags/train_flags.h"
#include "tools/reports/metrics_file.h"
#include "training/job/job.h"
#include "training/job/periodic_evaluation.h"
#include "training/job/trainer.h"
#include "training/records/tensorboard_writer.h"

namespace weft {

// Writes nothing where neither file is wanted. One thread at a time. All errors have exit code
// kDisk.
class TrainingCurves {
 public:
  // Opens the files. `job` is borrowed; `wanted`: all but the job's updates; rows of an earlier run
  // are kept up to `first_step`.
  static absl::StatusOr<std::unique_ptr<TrainingCurves>> Create(FileSystem& files, Clock& clock,
                                                                const ResultFiles& results,
                                                                const PreparedJob& job,
                                                                int64_t first_step,
                                                                const MetricsColumns& wanted);

  // `noise_scale`: of the measurements so far, where the step has measured.
  void AddStep(const TrainProgress& done, std::optional<double> noise_scale = std::nullopt);
  // Of an evaluation after the step that was added last.
  void AddEvaluation(const Measurement& measured);
  // What was added is with the system: it is not lost where this process is.
  void Flush();
  // The first error, also of the methods above.
  absl::Status Close();

 private:
  explicit TrainingCurves(const PreparedJob& job) : job_(job) {}
  // What all workers send in a step of the program.
  int64_t SentBytes(const std::string& program);

  const PreparedJob& job_;
  std::unique_ptr<MetricsFile> metrics_;      // null: not wanted
  std::unique_ptr<TensorBoardWriter> board_;  // null: not wanted
  std::map<std::string, int64_t> sent_;       // by program
};

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_TRAINING_CURVES_H_
