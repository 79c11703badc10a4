#include "tools/graph_runner/metrics_file.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int64_t kStepsPerFlush = 64;
constexpr char kHeader[] =
    "step,loss,learning_rate,samples_per_second,input_stall_seconds,bytes_sent\n";
constexpr char kRowBegin[] = "{\"step\":";

// The step of a row of either form; -1 for what is none.
int64_t StepOf(absl::string_view row) {
  absl::ConsumePrefix(&row, kRowBegin);
  int64_t step = -1;
  return absl::SimpleAtoi(row.substr(0, row.find(',')), &step) ? step : -1;
}

// The whole rows of steps before `first_step`.
std::string EarlierRows(FileSystem& files, const std::string& path, int64_t first_step) {
  std::string rows;
  if (first_step == 0 || !files.Exists(path)) return rows;
  const absl::StatusOr<std::string> text = files.ReadFile(path);
  if (!text.ok()) return rows;
  std::vector<absl::string_view> lines = absl::StrSplit(*text, '\n');
  lines.pop_back();  // empty, or cut off
  for (const absl::string_view line : lines) {
    const int64_t step = StepOf(line);
    if (step >= 0 && step < first_step) absl::StrAppend(&rows, line, "\n");
  }
  return rows;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Create(FileSystem& files,
                                                                 const std::string& path,
                                                                 int64_t first_step) {
  const bool json = absl::EndsWith(path, ".jsonl");
  const std::string rows = EarlierRows(files, path, first_step);
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files.OpenEmpty(path));
  if (!json) WEFT_RETURN_IF_ERROR(file->Append(kHeader));
  WEFT_RETURN_IF_ERROR(file->Append(rows));
  return std::unique_ptr<MetricsFile>(new MetricsFile(std::move(file), json));
}

void MetricsFile::Add(const StepMetrics& metrics) {
  if (!status_.ok()) return;
  const auto row = [&metrics](const auto& format) {
    return absl::StrFormat(format, metrics.step, metrics.loss, metrics.learning_rate,
                           metrics.samples_per_second, metrics.input_stall_seconds,
                           metrics.bytes_sent);
  };
  using Format = absl::FormatSpec<int64_t, double, double, double, double, int64_t>;
  status_ =
      file_->Append(json_ ? row(Format("{\"step\":%d,\"loss\":%.9g,\"learning_rate\":%.9g,"
                                       "\"samples_per_second\":%.6g,\"input_stall_seconds\":%.6g,"
                                       "\"bytes_sent\":%d}\n"))
                          : row(Format("%d,%.9g,%.9g,%.6g,%.6g,%d\n")));
  if (status_.ok() && metrics.step % kStepsPerFlush == 0) status_ = file_->Flush();
}

absl::Status MetricsFile::Close() {
  const absl::Status closed = file_->Close();
  return status_.ok() ? closed : status_;
}

}  // namespace weft
