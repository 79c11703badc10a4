// --memory-limit and --time-limit: what one run of a model may take.
#ifndef WEFT_TOOLS_FLAGS_RUN_LIMITS_H_
#define WEFT_TOOLS_FLAGS_RUN_LIMITS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/file_system.h"

namespace weft {

// The memory that this process can still get, in bytes: what the machine has free (MemAvailable of
// /proc/meminfo), and at most what its control groups allow. 0 where nobody says.
int64_t FreeMemory(FileSystem& files);

// Takes the flags of one command line. Not thread-safe.
class RunLimitFlags {
 public:
  void AddTo(CLI::App& app);

  // The memory of tensors: as given, or what is free. InvalidArgument for a text that is no size.
  absl::StatusOr<int64_t> MemoryBytes(FileSystem& files) const;
  // What a runner asks before each round of a loop and each run, from now on: DeadlineExceeded when
  // the time is over. Without a limit it tells `note` once, after ten seconds, that there is one.
  // Borrows the clock.
  std::function<absl::Status()> Check(Clock& clock,
                                      std::function<void(const std::string&)> note) const;

 private:
  std::string memory_;
  double seconds_ = 0;  // 0: no limit
};

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_RUN_LIMITS_H_
