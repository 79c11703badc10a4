#include "tools/graph_runner/metrics_file.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int64_t kStepsPerFlush = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Create(FileSystem& files,
                                                                 const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files.OpenEmpty(path));
  WEFT_RETURN_IF_ERROR(file->Append("step,loss\n"));
  return std::unique_ptr<MetricsFile>(new MetricsFile(std::move(file)));
}

void MetricsFile::Add(int64_t step, double loss) {
  if (!status_.ok()) return;
  status_ = file_->Append(absl::StrFormat("%d,%.9g\n", step, loss));
  if (status_.ok() && step % kStepsPerFlush == 0) status_ = file_->Flush();
}

absl::Status MetricsFile::Close() {
  const absl::Status closed = file_->Close();
  return status_.ok() ? closed : status_;
}

}  // namespace weft
