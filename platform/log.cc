#include "platform/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "platform/control_characters.h"
#include "platform/mutex.h"

namespace weft {
namespace {

std::atomic<LogLevel> current_level{LogLevel::kError};

// Never destroyed: threads may write lines to the end of the process.
struct Destination {
  Mutex mutex;
  std::string name ABSL_GUARDED_BY(mutex);
  std::function<void(const std::string&)> sink ABSL_GUARDED_BY(mutex);
};
Destination& TheDestination() {
  static auto* const destination = new Destination;
  return *destination;
}

// Whole, as far as the system takes it: lines of several processes share standard error.
void WriteToStandardError(const std::string& line) {
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = write(STDERR_FILENO, line.data() + written, line.size() - written);
    if (count <= 0) return;
    written += static_cast<size_t>(count);
  }
}

}  // namespace

const std::vector<std::string>& LogLevelNames() {
  static const auto* const names =
      new std::vector<std::string>{"error", "warning", "info", "debug"};
  return *names;
}

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  const auto& names = LogLevelNames();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<LogLevel>(found - names.begin());
}

void SetLogLevel(LogLevel level) { current_level.store(level, std::memory_order_relaxed); }
LogLevel CurrentLogLevel() { return current_level.load(std::memory_order_relaxed); }
bool IsLogged(LogLevel level) { return level <= CurrentLogLevel(); }

void SetLogName(const std::string& name) {
  Destination& to = TheDestination();
  MutexLock lock(to.mutex);
  to.name = name;
}

void SetLogSink(std::function<void(const std::string& line)> sink) {
  Destination& to = TheDestination();
  MutexLock lock(to.mutex);
  to.sink = std::move(sink);
}

void WriteLog(LogLevel level, std::string_view text) {
  const std::string time =
      absl::FormatTime("%Y-%m-%d %H:%M:%E6S", RealClock().Now(), absl::LocalTimeZone());
  Destination& to = TheDestination();
  MutexLock lock(to.mutex);
  const std::string line =
      absl::StrCat(time, " ", LogLevelNames()[static_cast<size_t>(level)], " ", getpid(), " ",
                   to.name, to.name.empty() ? "" : ": ", EscapeControlCharacters(text));
  if (to.sink != nullptr) {
    to.sink(line);
  } else {
    WriteToStandardError(line + "\n");
  }
}

LoggedPhase::LoggedPhase(std::string name, LogLevel level)
    : name_(std::move(name)), level_(level), begin_(RealClock().MonotonicNanos()) {
  Log(LogLevel::kDebug, name_, " ...");
}

void LoggedPhase::End() {
  if (std::exchange(ended_, true) || !IsLogged(level_)) return;
  const double seconds = static_cast<double>(RealClock().MonotonicNanos() - begin_) * 1e-9;
  const std::string duration =
      seconds < 1 ? absl::StrFormat("%.3g ms", 1e3 * seconds) : absl::StrFormat("%.4g s", seconds);
  WriteLog(level_, absl::StrCat(name_, ": ", duration, notes_));
}

}  // namespace weft
