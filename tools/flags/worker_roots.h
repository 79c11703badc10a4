// The folders that a worker is started with: --data-root, --checkpoint-root, --allow-path.
#ifndef WEFT_TOOLS_FLAGS_WORKER_ROOTS_H_
#define WEFT_TOOLS_FLAGS_WORKER_ROOTS_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

namespace weft {

// Where jobs may read data and write checkpoints on a worker's machine.
struct WorkerRoots {
  std::vector<std::string> data;
  std::vector<std::string> checkpoints;
  bool is_default = false;  // no flag was given: both are the working folder
};

// Takes the flags of one command line. Not thread-safe.
class WorkerRootFlags {
 public:
  void AddTo(CLI::App& app);

  // What the flags say. A worker without any has its working folder for both; with only one of the
  // two, the other kind has no folder. Errors, with the exit code of wrong usage and naming flag
  // and folder: a folder that is missing, and no flag where the working folder is "/".
  absl::StatusOr<WorkerRoots> Roots() const;

 private:
  std::vector<std::string> data_;
  std::vector<std::string> checkpoints_;
  std::vector<std::string> both_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_WORKER_ROOTS_H_
