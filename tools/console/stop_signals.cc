#include "tools/console/stop_signals.h"

#include <atomic>

namespace weft {
namespace {

std::atomic<int> received = 0;
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

void Receive(int signal) {
  int none = 0;
  if (received.compare_exchange_strong(none, signal)) return;
  // The second: let the system end the process, so that whoever waits for it sees the signal.
  struct sigaction plain = {};
  plain.sa_handler = SIG_DFL;
  sigaction(signal, &plain, nullptr);
  raise(signal);
}

}  // namespace

StopSignals::StopSignals() {
  received = 0;
  struct sigaction action = {};
  action.sa_handler = &Receive;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_terminate_);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
}

int StopSignals::signal() const { return received; }

std::string StopSignals::name() const {
  const int signal = received;
  if (signal == 0) return "";
  return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

}  // namespace weft
