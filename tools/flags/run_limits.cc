#include "tools/flags/run_limits.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "platform/process_memory.h"
#include "platform/text/units.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

constexpr char kRunLimits[] = "limits";
constexpr double kNoteSeconds = 10;
constexpr double kMaxSeconds = 1e9;

// "MemAvailable:   21801234 kB" of /proc/meminfo; 0 where it is not there.
int64_t AvailableOnMachine(FileSystem& files) {
  const auto text = files.ReadFile("/proc/meminfo");
  if (!text.ok()) return 0;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kibibytes = 0;
    if (words.size() >= 2 && words[0] == "MemAvailable:" &&
        absl::SimpleAtoi(words[1], &kibibytes)) {
      return std::clamp<int64_t>(kibibytes, 0, int64_t{1} << 50) * 1024;
    }
  }
  return 0;
}

}  // namespace

int64_t FreeMemory(FileSystem& files) {
  const int64_t available = AvailableOnMachine(files);
  const int64_t allowed = ProcessMemoryLimit(files).bytes;
  if (available == 0 || allowed == 0) return std::max(available, allowed);
  return std::min(available, allowed);
}

void RunLimitFlags::AddTo(CLI::App& app) {
  app.add_option(
         "--memory-limit", memory_,
         "most memory for tensors; a node that needs more is refused by name (default: what "
         "is free)")
      ->type_name("2GiB")
      ->group(kRunLimits);
  app.add_option("--time-limit", seconds_,
                 "end a run whose loops take longer, naming the loop's node (default: none)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, kMaxSeconds).description(""))
      ->group(kRunLimits);
}

absl::StatusOr<int64_t> RunLimitFlags::MemoryBytes(FileSystem& files) const {
  if (memory_.empty()) return FreeMemory(files);
  const auto bytes = ParseBytes(memory_);
  if (bytes.ok() && *bytes > 0) return *bytes;
  return UsageError(
      absl::StrCat("--memory-limit '", memory_, "' is no size above 0, as in 512MiB or 2GiB"));
}

std::function<absl::Status()> RunLimitFlags::Check(
    Clock& clock, std::function<void(const std::string&)> note) const {
  const int64_t begin = clock.MonotonicNanos();
  return [&clock, begin, limit = seconds_, note = std::move(note),
          is_told = false]() mutable -> absl::Status {
    const double seconds = static_cast<double>(clock.MonotonicNanos() - begin) * 1e-9;
    if (limit > 0 && seconds > limit) {
      return absl::DeadlineExceededError(
          absl::StrCat("it was still running after ", limit, " s, the limit of --time-limit"));
    }
    if (limit == 0 && seconds > kNoteSeconds && !is_told) {
      is_told = true;
      note(absl::StrCat("a loop of the model has run for ", kNoteSeconds,
                        " s; Ctrl-C ends it, and --time-limit SECONDS names its node"));
    }
    return absl::OkStatus();
  };
}

}  // namespace weft
