// MetricsFile: what each step of a run gave, as CSV or as lines of JSON.
#ifndef WEFT_TOOLS_REPORTS_METRICS_FILE_H_
#define WEFT_TOOLS_REPORTS_METRICS_FILE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "training/scaling/noise_scale.h"

namespace weft {

// One row of a metrics file.
struct StepMetrics {
  int64_t step = 0;  // from 0
  double loss = 0;   // of its batch, before its update
  double learning_rate = 0;
  double samples_per_second = 0;
  double input_stall_seconds = 0;  // that it waited for data
  int64_t bytes_sent = 0;          // between the workers
  // Of a job with a loss scale: that of the step, and how many steps it has skipped so far.
  double loss_scale = 0;
  int64_t skipped_steps = 0;
  std::string update = {};  // of several in turn: whose step it was
  // Of a step that has measured the noise of its gradient (training/scaling/noise_scale.h).
  std::optional<NoiseMeasurement> noise = std::nullopt;
  std::optional<double> noise_scale = std::nullopt;  // of the measurements so far, in samples
};

// Which columns a job has beside those of every job.
struct MetricsColumns {
  std::vector<std::string> evaluated = {};  // metrics of evaluations
  bool has_loss_scale = false;
  bool has_noise = false;                 // the noise of the gradient is measured
  std::vector<std::string> updates = {};  // several in turn
};

// Columns, or keys where the file's name ends with .jsonl: those of StepMetrics, in its order (the
// loss scale's only in jobs with one; gradient_variance, gradient_square and noise_scale only where
// the noise is measured, in the rows of steps that have), then
// "loss_UPDATE" of updates in turn, in the rows of their steps, and
// "eval_METRIC" of the evaluations, in the row of the step that they follow: other rows have empty
// columns, or no such keys. Losses and metrics have 9 significant digits. Rows reach the system at
// least every 64 steps, and with the first step after a tenth of a second, so that a killed run
// leaves them and a slow one can be followed. One thread at a time.
class MetricsFile {
 public:
  // Borrows the clock. Keeps the rows of steps before `first_step` that an earlier run has left (0:
  // none). They may have had other columns.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Create(FileSystem& files,
                                                             const std::string& path,
                                                             int64_t first_step = 0,
                                                             const MetricsColumns& wanted = {},
                                                             Clock& clock = RealClock());
  // Keeps the first error until Close.
  void Add(const StepMetrics& metrics);
  // Of an evaluation after the step that was added last.
  void AddEvaluation(const std::map<std::string, double>& metrics);
  // The rows so far are with the system. No evaluation of the last step may follow.
  void FlushRows() {
    WriteRow();
    Flush();
  }
  absl::Status Close();

 private:
  MetricsFile(std::unique_ptr<WritableFile> file, bool json, std::vector<std::string> columns,
              bool has_loss_scale, bool has_evaluations, Clock& clock)
      : file_(std::move(file)),
        json_(json),
        columns_(std::move(columns)),
        has_loss_scale_(has_loss_scale),
        has_evaluations_(has_evaluations),
        clock_(clock),
        flushed_nanos_(clock.MonotonicNanos()) {}

  void WriteRow();
  void Flush();

  std::unique_ptr<WritableFile> file_;
  const bool json_;
  const std::vector<std::string> columns_;
  const bool has_loss_scale_;
  const bool has_evaluations_;
  Clock& clock_;
  int64_t flushed_nanos_;                   // when
  std::map<std::string, std::string> row_;  // by column, to be written; empty: none
  absl::Status status_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_METRICS_FILE_H_
