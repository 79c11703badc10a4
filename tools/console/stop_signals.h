// StopSignals: SIGINT, SIGTERM and SIGHUP as a hint to end, SIGUSR1 as one to save.
#ifndef WEFT_TOOLS_CONSOLE_STOP_SIGNALS_H_
#define WEFT_TOOLS_CONSOLE_STOP_SIGNALS_H_

#include <signal.h>

#include <string>

namespace weft {

// While it lives, the first SIGINT, SIGTERM or SIGHUP is remembered, and a second one ends the
// process at once, as if nobody had listened. A SIGHUP that is ignored (nohup) stays so. SIGUSR1 is
// remembered, however often it comes. One at a time; the destructor puts back what was there
// before.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that came, or 0. Any thread.
  int signal() const;
  // "SIGTERM"; "" when none came.
  std::string name() const;
  // Whether SIGUSR1 has come since the last call. Any thread.
  bool TakeSaveRequest() const;

 private:
  struct sigaction old_interrupt_ = {};
  struct sigaction old_terminate_ = {};
  struct sigaction old_hangup_ = {};
  struct sigaction old_save_ = {};
};

}  // namespace weft

#endif  // WEFT_TOOLS_CONSOLE_STOP_SIGNALS_H_
