// Log lines for whoever looks for a hang or a slow start. Nobody gets them unasked: at the level
// that is set without a word (error) nothing of a job that goes well or ends with an error is
// written. What people shall know anyhow goes through the console of the command, not through here.
//
//   2026-11-24 18:30:05.123456 info 4711 worker:1: program 'train/128': 14.2 ms
//
#ifndef WEFT_PLATFORM_LOG_H_
#define WEFT_PLATFORM_LOG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft {

// Each one with those before it.
enum class LogLevel {
  kError,    // what nobody else would tell
  kWarning,  // what went wrong and may be the cause of what follows
  kInfo,     // phases and what they took; what happens to a job now and then
  kDebug,    // begins of phases, calls, stretches of steps
};
const std::vector<std::string>& LogLevelNames();
std::optional<LogLevel> ParseLogLevel(std::string_view name);

// Of the process; these three are for main and for tests. Thread-safe.
void SetLogLevel(LogLevel level);
LogLevel CurrentLogLevel();
// What this process is in a job: "worker:1".
void SetLogName(const std::string& name);
// Who gets the lines, without their ends, one at a time; null: standard error.
void SetLogSink(std::function<void(const std::string& line)> sink);

// One look at an atomic number.
bool IsLogged(LogLevel level);
// Writes a line whatever the level; control characters are escaped.
void WriteLog(LogLevel level, std::string_view text);

// Not for what happens in every step. Thread-safe.
template <typename... Parts>
void Log(LogLevel level, const Parts&... parts) {
  if (IsLogged(level)) WriteLog(level, absl::StrCat(parts...));
}

// A part of a job's way: "plan ..." at the level debug when it begins, "plan: 12.3 ms" at its own
// when it ends, also with an error. One thread.
class LoggedPhase {
 public:
  explicit LoggedPhase(std::string name, LogLevel level = LogLevel::kInfo);
  ~LoggedPhase() { End(); }
  LoggedPhase(const LoggedPhase&) = delete;
  LoggedPhase& operator=(const LoggedPhase&) = delete;

  // Said when it ends: "plan: 12.3 ms, dp=2".
  template <typename... Parts>
  void Note(const Parts&... parts) {
    if (IsLogged(level_)) absl::StrAppend(&notes_, ", ", parts...);
  }
  // Ends it now.
  void End();

 private:
  const std::string name_;
  const LogLevel level_;
  std::string notes_;
  int64_t begin_ = 0;
  bool ended_ = false;
};

}  // namespace weft

#endif  // WEFT_PLATFORM_LOG_H_
