// MetricsFile: what each step of a run gave, as CSV or as lines of JSON.
#ifndef WEFT_TOOLS_GRAPH_RUNNER_METRICS_FILE_H_
#define WEFT_TOOLS_GRAPH_RUNNER_METRICS_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/file_system.h"

namespace weft {

struct StepMetrics {
  int64_t step = 0;  // from 0
  double loss = 0;   // of its batch, before its update
  double learning_rate = 0;
  double samples_per_second = 0;
  double input_stall_seconds = 0;  // that it waited for data
  int64_t bytes_sent = 0;          // between the workers
};

// Columns, or keys where the file's name ends with .jsonl: those of StepMetrics, in its order.
// Losses have 9 significant digits. Rows reach the system at least every 64 steps, so that a killed
// run leaves them. One thread.
class MetricsFile {
 public:
  // Keeps the rows of steps before `first_step` that an earlier run has left (0: none).
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Create(FileSystem& files,
                                                             const std::string& path,
                                                             int64_t first_step = 0);
  // Keeps the first error until Close.
  void Add(const StepMetrics& metrics);
  absl::Status Close();

 private:
  MetricsFile(std::unique_ptr<WritableFile> file, bool json)
      : file_(std::move(file)), json_(json) {}

  std::unique_ptr<WritableFile> file_;
  const bool json_;
  absl::Status status_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_GRAPH_RUNNER_METRICS_FILE_H_
