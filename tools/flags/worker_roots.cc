#include "tools/flags/worker_roots.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

// A folder that is misspelled would allow nothing, and show only when a job asks for it.
absl::Status CheckAreFolders(const char* flag, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) continue;
    return UsageError(
        absl::StrCat(flag, " ", folder, ": no such folder; make it, or name another"));
  }
  return absl::OkStatus();
}

std::vector<std::string> Joined(std::vector<std::string> some,
                                const std::vector<std::string>& more) {
  some.insert(some.end(), more.begin(), more.end());
  return some;
}

}  // namespace

void WorkerRootFlags::AddTo(CLI::App& app) {
  app.add_option("--data-root", data_,
                 "folder below which jobs may read data; may be repeated (default: the working "
                 "folder, where none is given)")
      ->type_name("DIR");
  app.add_option("--checkpoint-root", checkpoints_,
                 "folder below which jobs may write checkpoints; may be repeated (default: the "
                 "working folder, where none is given)")
      ->type_name("DIR");
  app.add_option("--allow-path", both_, "a folder for both; may be repeated")->type_name("DIR");
}

absl::StatusOr<WorkerRoots> WorkerRootFlags::Roots() const {
  WEFT_RETURN_IF_ERROR(CheckAreFolders("--data-root", data_));
  WEFT_RETURN_IF_ERROR(CheckAreFolders("--checkpoint-root", checkpoints_));
  WEFT_RETURN_IF_ERROR(CheckAreFolders("--allow-path", both_));
  if (!data_.empty() || !checkpoints_.empty() || !both_.empty()) {
    return WorkerRoots{Joined(data_, both_), Joined(checkpoints_, both_), false};
  }
  std::error_code error;
  const std::string working = std::filesystem::current_path(error).string();
  if (error || working == "/") {
    return UsageError(
        "the working folder is /: jobs could read and write every file of this user; name the "
        "folders for them with --data-root DIR and --checkpoint-root DIR");
  }
  return WorkerRoots{{working}, {working}, true};
}

}  // namespace weft
