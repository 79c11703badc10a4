// StopSignals: SIGINT and SIGTERM as a hint to end.
#ifndef WEFT_TOOLS_CONSOLE_STOP_SIGNALS_H_
#define WEFT_TOOLS_CONSOLE_STOP_SIGNALS_H_

#include <signal.h>

#include <string>

namespace weft {

// While it lives, the first SIGINT or SIGTERM is remembered, and a second one ends the process at
// once, as if nobody had listened. One at a time; the destructor puts back what was there before.
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

 private:
  struct sigaction old_interrupt_ = {};
  struct sigaction old_terminate_ = {};
};

}  // namespace weft

#endif  // WEFT_TOOLS_CONSOLE_STOP_SIGNALS_H_
