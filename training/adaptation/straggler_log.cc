#include "training/adaptation/straggler_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace weft {

StragglerLog::StragglerLog(Clock& clock, std::function<void(const std::string& line)> say)
    : clock_(clock), say_(std::move(say)), start_(clock.MonotonicNanos()) {}

absl::Duration StragglerLog::Now() const {
  return absl::Nanoseconds(clock_.MonotonicNanos() - start_);
}

void StragglerLog::Add(const SpeedChange& change, const std::string& worker, std::string line) {
  Worker& entry = workers_[worker];
  const bool recovered = change.kind == SpeedChange::Kind::kRecovered;
  if (!recovered && !entry.is_slow) {
    entry.slow_since = Now();
    ++entry.times;
  }
  if (recovered && entry.is_slow) entry.slow_time += Now() - entry.slow_since;
  if (!recovered) entry.factor = std::max(entry.factor, change.factor);
  entry.is_slow = !recovered;
  entry.pending = std::move(line);
  // Nobody has heard that it was slow.
  if (recovered && !entry.was_said) entry.pending.clear();
  Update();
}

bool StragglerLog::IsDue(const Worker& worker) const {
  if (worker.pending.empty()) return false;
  if (worker.was_said) return Now() - worker.said_at >= kInterval;
  return worker.is_slow && Now() - worker.slow_since >= kLasting;
}

void StragglerLog::Say(Worker& worker) {
  say_(std::exchange(worker.pending, std::string()));
  worker.was_said = true;
  worker.said_at = Now();
}

void StragglerLog::Update() {
  for (auto& [name, worker] : workers_) {
    if (IsDue(worker)) Say(worker);
  }
}

void StragglerLog::SayWhoIsSlow() {
  for (auto& [name, worker] : workers_) {
    if (worker.is_slow && !worker.was_said && !worker.pending.empty()) Say(worker);
  }
}

void StragglerLog::Finish() {
  for (auto& [name, worker] : workers_) {
    if (worker.is_slow && !worker.pending.empty()) Say(worker);
    absl::Duration slow = worker.slow_time;
    if (worker.is_slow) slow += Now() - worker.slow_since;
    if (slow < kLasting) continue;
    say_(absl::StrFormat(
        "slow   %s in all: slower than usual %d %s, for %.1f of %.1f s, at most %.1f times", name,
        worker.times, worker.times == 1 ? "time" : "times", absl::ToDoubleSeconds(slow),
        absl::ToDoubleSeconds(Now()), worker.factor));
  }
  workers_.clear();
}

}  // namespace weft
