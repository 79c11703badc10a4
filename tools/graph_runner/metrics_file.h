// MetricsFile: the losses of a run as CSV.
#ifndef WEFT_TOOLS_GRAPH_RUNNER_METRICS_FILE_H_
#define WEFT_TOOLS_GRAPH_RUNNER_METRICS_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/file_system.h"

namespace weft {

// Columns step,loss: the loss of batch k, counted from 0, before update k, with 9 significant
// digits. Rows reach the system at least every 64 steps, so that a killed run leaves them. One
// thread.
class MetricsFile {
 public:
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Create(FileSystem& files,
                                                             const std::string& path);
  // Keeps the first error until Close.
  void Add(int64_t step, double loss);
  absl::Status Close();

 private:
  explicit MetricsFile(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}

  std::unique_ptr<WritableFile> file_;
  absl::Status status_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_GRAPH_RUNNER_METRICS_FILE_H_
