#include "tools/jobs/training_results.h"

#include <map>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"
#include "tools/models/value_files.h"
#include "tools/reports/training_report.h"

namespace weft {
namespace {

absl::Status SaveGradients(FileSystem& files, const std::string& folder,
                           const std::map<std::string, Tensor>& gradients) {
  if (folder.empty()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(files.CreateDirectories(folder));
  for (const auto& [name, gradient] : gradients) {
    WEFT_RETURN_IF_ERROR(WriteTensorFile(files, folder, name, gradient).status());
  }
  return absl::OkStatus();
}

absl::Status Save(FileSystem& files, const ResultFiles& wanted, const TrainedModel& model,
                  const TrainResult& result, Console& console) {
  WEFT_RETURN_IF_ERROR(SaveGradients(files, wanted.gradients, result.gradients));
  absl::Status saved;
  for (const auto& [path, values] : {std::pair(wanted.model, &result.parameters),
                                     std::pair(wanted.averages, &result.averages)}) {
    if (path.empty()) continue;
    const absl::StatusOr<std::string> note = model.Save(files, path, *values);
    saved.Update(note.status());
    if (note.ok() && !note->empty()) *console.err << "note: " << Printable(*note) << "\n";
  }
  WEFT_RETURN_IF_ERROR(saved);
  if (wanted.adapters.empty()) return absl::OkStatus();
  return model.SaveAdapters(files, wanted.adapters, result.parameters);
}

// By rank.
absl::StatusOr<std::vector<std::string>> ReadProgramTexts(Coordinator& coordinator,
                                                          const std::string& program) {
  std::vector<std::string> texts(static_cast<size_t>(coordinator.size()));
  bool complete = false;
  for (int64_t offset = 0; !complete; offset += static_cast<int64_t>(kProgramTextBytes)) {
    complete = true;
    for (int rank = 0; rank < coordinator.size(); ++rank) {
      std::string& text = texts[static_cast<size_t>(rank)];
      if (static_cast<int64_t>(text.size()) < offset) continue;  // it was shorter
      WEFT_ASSIGN_OR_RETURN(const ProgramText next,
                            coordinator.Ask(rank, ProgramTextRequest{program, offset}));
      text += next.part;
      complete = complete && static_cast<int64_t>(text.size()) >= next.total_bytes;
    }
  }
  return texts;
}

absl::Status Append(FileSystem& files, const std::string& path, const std::string& line) {
  WEFT_ASSIGN_OR_RETURN(const auto file, files.OpenAppend(path));
  WEFT_RETURN_IF_ERROR(file->Append(line));
  return file->Close();
}

}  // namespace

absl::Status CheckOutputs(FileSystem& files, const ResultFiles& wanted, const std::string& best) {
  for (const std::string& path : {wanted.model, wanted.averages, wanted.adapters, best}) {
    if (path.empty()) continue;
    // A replacement that is not closed leaves the file as it is.
    WEFT_RETURN_IF_ERROR(WithExitCode(files.OpenReplacement(path).status(), ExitCode::kDisk));
  }
  return absl::OkStatus();
}

absl::Status SaveProgramTexts(FileSystem& files, const std::string& folder, const PreparedJob& job,
                              Coordinator& coordinator) {
  if (folder.empty()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(WithExitCode(files.CreateDirectories(folder), ExitCode::kDisk));
  for (const JobProgram& program : job.programs) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                          ReadProgramTexts(coordinator, program.name));
    for (size_t rank = 0; rank < texts.size(); ++rank) {
      const std::string path = absl::StrCat(
          folder, "/worker-", rank, ".", absl::StrReplaceAll(program.name, {{"/", "-"}}), ".txt");
      WEFT_RETURN_IF_ERROR(
          WithExitCode(files.WriteFileAtomically(path, texts[rank]), ExitCode::kDisk));
    }
  }
  return absl::OkStatus();
}

absl::Status SaveResults(FileSystem& files, const ResultFiles& wanted, const TrainedModel& model,
                         const TrainResult& result, Console& console) {
  return WithExitCode(Save(files, wanted, model, result, console), ExitCode::kDisk);
}

absl::Status AppendToHistory(FileSystem& files, const std::string& path,
                             const RunHistoryEntry& entry) {
  if (path.empty() || entry.steps == 0) return absl::OkStatus();
  return WithExitCode(Append(files, path, RunHistoryLine(entry)), ExitCode::kDisk);
}

void ReportResults(const TrainingRun& run, const JobLoop& loop, const ResultFiles& files, bool json,
                   Console& console) {
  TrainingOutcome outcome = run.Outcome();
  outcome.model = files.model;
  outcome.averages = files.averages;
  outcome.metrics = files.metrics;
  if (json) {
    nlohmann::ordered_json report = TrainingOutcomeJson(outcome);
    loop.AddToReport(run.step_seconds(), report);
    *console.out << report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return;
  }
  *console.out << TrainingOutcomeText(outcome);
  loop.Report(run.step_seconds(), console);
  *console.out << TrainingFilesText(outcome);
}

}  // namespace weft
