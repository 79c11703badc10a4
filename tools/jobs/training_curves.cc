#include "tools/jobs/training_curves.h"

#include "absl/strings/str_cat.h"
#include "placement/partition/partition_summary.h"
#include "tools/console/exit_code.h"

namespace weft {

absl::StatusOr<std::unique_ptr<TrainingCurves>> TrainingCurves::Create(
    FileSystem& files, Clock& clock, const ResultFiles& results, const PreparedJob& job,
    int64_t first_step, const MetricsColumns& wanted) {
  std::unique_ptr<TrainingCurves> curves(new TrainingCurves(job));
  if (!results.metrics.empty()) {
    MetricsColumns columns = wanted;
    for (const PreparedUpdate& update : job.updates) columns.updates.push_back(update.name);
    auto created = MetricsFile::Create(files, results.metrics, first_step, columns, clock);
    if (!created.ok()) return WithExitCode(created.status(), ExitCode::kDisk);
    curves->metrics_ = *std::move(created);
    // Now, and not while steps run.
    for (const JobProgram& program : job.programs) curves->SentBytes(program.name);
  }
  if (!results.tensorboard.empty()) {
    auto created = TensorBoardWriter::Create(files, clock, results.tensorboard);
    if (!created.ok()) return WithExitCode(created.status(), ExitCode::kDisk);
    curves->board_ = *std::move(created);
  }
  return curves;
}

int64_t TrainingCurves::SentBytes(const std::string& program) {
  const auto known = sent_.find(program);
  if (known != sent_.end()) return known->second;
  int64_t& bytes = sent_[program];
  for (const JobProgram& one : job_.programs) {
    if (one.name != program) continue;
    for (const Partition& partition : one.partitions) {
      const auto summary = Summarize(partition);
      if (summary.ok()) bytes += summary->sent_bytes;
    }
  }
  return bytes;
}

void TrainingCurves::AddStep(const TrainProgress& done, std::optional<double> noise_scale) {
  if (board_ != nullptr) {
    const std::string of = done.update.empty() ? "" : absl::StrCat("_", done.update);
    board_->AddScalar(absl::StrCat("train/loss", of), done.step, done.loss);
  }
  if (board_ != nullptr && noise_scale.has_value()) {
    board_->AddScalar("train/noise_scale", done.step, *noise_scale);
  }
  if (metrics_ == nullptr) return;
  const double rate = done.seconds > 0 ? static_cast<double>(done.samples) / done.seconds : 0;
  metrics_->Add({done.step, done.loss, done.learning_rate, rate, done.input_seconds,
                 SentBytes(done.program), done.loss_scale, done.skipped_steps, done.update,
                 done.noise, noise_scale});
}

void TrainingCurves::AddEvaluation(const Measurement& measured) {
  if (metrics_ != nullptr) metrics_->AddEvaluation(measured.metrics);
  if (board_ == nullptr) return;
  for (const auto& [name, value] : measured.metrics) {
    board_->AddScalar(absl::StrCat("eval/", name), measured.step - 1, value);
  }
}

void TrainingCurves::Flush() {
  if (metrics_ != nullptr) metrics_->FlushRows();
}

absl::Status TrainingCurves::Close() {
  absl::Status closed = metrics_ == nullptr ? absl::OkStatus() : metrics_->Close();
  if (board_ != nullptr) closed.Update(board_->Close());
  return WithExitCode(closed, ExitCode::kDisk);
}

}  // namespace weft
