#include "tools/reports/metrics_file.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int64_t kStepsPerFlush = 64;
constexpr int64_t kNanosPerFlush = 100'000'000;
constexpr char kEvaluated[] = "eval_";
constexpr char kLossOf[] = "loss_";
constexpr char kVariance[] = "gradient_variance";
constexpr char kSquare[] = "gradient_square";
constexpr char kNoiseScale[] = "noise_scale";
constexpr char kRowBegin[] = "{\"step\":";

std::vector<std::string> ColumnsOf(const MetricsColumns& wanted) {
  std::vector<std::string> columns = {
      "step", "loss", "learning_rate", "samples_per_second", "input_stall_seconds", "bytes_sent"};
  if (wanted.has_loss_scale) columns.insert(columns.end(), {"loss_scale", "skipped_steps"});
  if (wanted.has_noise) columns.insert(columns.end(), {kVariance, kSquare, kNoiseScale});
  for (const std::string& update : wanted.updates) columns.push_back(absl::StrCat(kLossOf, update));
  for (const std::string& metric : wanted.evaluated) {
    columns.push_back(absl::StrCat(kEvaluated, metric));
  }
  return columns;
}

// The step of a row of either form; -1 for what is none.
int64_t StepOf(absl::string_view row) {
  absl::ConsumePrefix(&row, kRowBegin);
  int64_t step = -1;
  return absl::SimpleAtoi(row.substr(0, row.find(',')), &step) ? step : -1;
}

// A row with the columns `from`, as one with the columns `to`.
std::string Rearranged(absl::string_view row, const std::vector<std::string>& from,
                       const std::vector<std::string>& to) {
  const std::vector<std::string> cells = absl::StrSplit(row, ',');
  std::map<std::string, std::string> by_column;
  for (size_t i = 0; i < from.size() && i < cells.size(); ++i) by_column[from[i]] = cells[i];
  std::vector<std::string> made;
  for (const std::string& column : to) made.push_back(by_column[column]);
  return absl::StrJoin(made, ",");
}

// The whole rows of steps before `first_step`.
std::string EarlierRows(FileSystem& files, const std::string& path, int64_t first_step,
                        const std::vector<std::string>& columns) {
  std::string rows;
  if (first_step == 0 || !files.Exists(path)) return rows;
  const absl::StatusOr<std::string> text = files.ReadFile(path);
  if (!text.ok()) return rows;
  std::vector<absl::string_view> lines = absl::StrSplit(*text, '\n');
  lines.pop_back();  // empty, or cut off
  const std::vector<std::string> header =
      absl::StrSplit(lines.empty() ? absl::string_view() : lines.front(), ',');
  for (const absl::string_view line : lines) {
    const int64_t step = StepOf(line);
    if (step < 0 || step >= first_step) continue;
    const bool as_it_is = absl::StartsWith(line, kRowBegin) || header == columns;
    absl::StrAppend(&rows, as_it_is ? std::string(line) : Rearranged(line, header, columns), "\n");
  }
  return rows;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Create(FileSystem& files,
                                                                 const std::string& path,
                                                                 int64_t first_step,
                                                                 const MetricsColumns& wanted,
                                                                 Clock& clock) {
  const bool json = absl::EndsWith(path, ".jsonl");
  std::vector<std::string> columns = ColumnsOf(wanted);
  const std::string rows = EarlierRows(files, path, first_step, columns);
  // A run that has lost the job may have the file open: what it still writes goes nowhere then.
  if (!rows.empty()) files.RemoveFile(path).IgnoreError();
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files.OpenEmpty(path));
  if (!json) {
    WEFT_RETURN_IF_ERROR(file->Append(absl::StrCat(absl::StrJoin(columns, ","), "\n")));
  }
  WEFT_RETURN_IF_ERROR(file->Append(rows));
  return std::unique_ptr<MetricsFile>(new MetricsFile(std::move(file), json, std::move(columns),
                                                      wanted.has_loss_scale,
                                                      !wanted.evaluated.empty(), clock));
}

void MetricsFile::WriteRow() {
  if (row_.empty() || !status_.ok()) return;
  std::vector<std::string> cells;
  for (const std::string& column : columns_) {
    const auto cell = row_.find(column);
    if (!json_) {
      cells.push_back(cell == row_.end() ? "" : cell->second);
    } else if (cell != row_.end()) {
      cells.push_back(absl::StrCat("\"", column, "\":", cell->second));
    }
  }
  const std::string text = absl::StrJoin(cells, ",");
  status_ = file_->Append(json_ ? absl::StrCat("{", text, "}\n") : absl::StrCat(text, "\n"));
  row_.clear();
}

void MetricsFile::Add(const StepMetrics& metrics) {
  WriteRow();
  const auto number = [](double value, bool exact) {
    return exact ? absl::StrFormat("%.9g", value) : absl::StrFormat("%.6g", value);
  };
  row_ = {{"step", absl::StrCat(metrics.step)},
          {"loss", number(metrics.loss, true)},
          {"learning_rate", number(metrics.learning_rate, true)},
          {"samples_per_second", number(metrics.samples_per_second, false)},
          {"input_stall_seconds", number(metrics.input_stall_seconds, false)},
          {"bytes_sent", absl::StrCat(metrics.bytes_sent)}};
  if (has_loss_scale_) {
    row_["loss_scale"] = number(metrics.loss_scale, true);
    row_["skipped_steps"] = absl::StrCat(metrics.skipped_steps);
  }
  if (!metrics.update.empty()) {
    row_[absl::StrCat(kLossOf, metrics.update)] = number(metrics.loss, true);
  }
  if (metrics.noise.has_value()) {
    row_[kVariance] = number(metrics.noise->variance, true);
    row_[kSquare] = number(metrics.noise->square, true);
  }
  if (metrics.noise_scale.has_value()) row_[kNoiseScale] = number(*metrics.noise_scale, true);
  // Without evaluations, nothing will be added to it.
  if (!has_evaluations_) WriteRow();
  const bool is_late = clock_.MonotonicNanos() - flushed_nanos_ >= kNanosPerFlush;
  if (metrics.step % kStepsPerFlush == 0 || is_late) Flush();
}

void MetricsFile::Flush() {
  if (status_.ok()) status_ = file_->Flush();
  flushed_nanos_ = clock_.MonotonicNanos();
}

void MetricsFile::AddEvaluation(const std::map<std::string, double>& metrics) {
  if (row_.empty()) return;
  for (const auto& [name, value] : metrics) {
    const std::string text = absl::StrFormat("%.9g", value);
    row_[absl::StrCat(kEvaluated, name)] = json_ && !std::isfinite(value) ? "null" : text;
  }
  WriteRow();
  Flush();
}

absl::Status MetricsFile::Close() {
  WriteRow();
  const absl::Status closed = file_->Close();
  return status_.ok() ? closed : status_;
}

}  // namespace weft
