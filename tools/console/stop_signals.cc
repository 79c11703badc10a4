#include "tools/console/stop_signals.h"

#include <atomic>

namespace weft {
namespace {

std::atomic<int> received = 0;
std::atomic<bool> save_requested = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "used in a signal handler");

void ReceiveSave(int) { save_requested = true; }

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
  save_requested = false;
  struct sigaction action = {};
  action.sa_handler = &Receive;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_terminate_);
  sigaction(SIGHUP, nullptr, &old_hangup_);
  if (old_hangup_.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  action.sa_handler = &ReceiveSave;
  sigaction(SIGUSR1, &action, &old_save_);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
  sigaction(SIGHUP, &old_hangup_, nullptr);
  sigaction(SIGUSR1, &old_save_, nullptr);
}

int StopSignals::signal() const { return received; }

std::string StopSignals::name() const {
  const int signal = received;
  if (signal == 0) return "";
  if (signal == SIGHUP) return "SIGHUP";
  return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

bool StopSignals::TakeSaveRequest() const { return save_requested.exchange(false); }

}  // namespace weft
