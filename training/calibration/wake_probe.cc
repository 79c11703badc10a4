#include "training/calibration/wake_probe.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace weft {
namespace {

constexpr int kHandOvers = 64;

}  // namespace

double ProbeWakeSeconds(Clock& clock) {
  std::atomic<int> turn{0};  // even: ours
  std::thread other([&turn] {
    for (int i = 1; i < 2 * kHandOvers; i += 2) {
      for (int seen = turn.load(); seen < i; seen = turn.load()) turn.wait(seen);
      turn.store(i + 1);
      turn.notify_one();
    }
  });
  std::vector<double> rounds;
  for (int i = 0; i < 2 * kHandOvers; i += 2) {
    const int64_t begin = clock.MonotonicNanos();
    turn.store(i + 1);
    turn.notify_one();
    for (int seen = turn.load(); seen < i + 2; seen = turn.load()) turn.wait(seen);
    rounds.push_back(1e-9 * static_cast<double>(clock.MonotonicNanos() - begin));
  }
  other.join();
  std::nth_element(rounds.begin(), rounds.begin() + kHandOvers / 2, rounds.end());
  return rounds[kHandOvers / 2] / 2;
}

}  // namespace weft
