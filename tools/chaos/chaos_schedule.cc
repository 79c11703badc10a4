#include "tools/chaos/chaos_schedule.h"

#include <algorithm>
#include <cstddef>
#include <random>

#include "absl/strings/str_format.h"

namespace weft {
namespace {

// The standard says every bit of this generator, but not what its distributions do with them.
int64_t NumberBelow(std::mt19937_64& random, int64_t end) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
}

// How long a fault of this kind lasts.
void DrawLength(std::mt19937_64& random, double silence, ChaosFault& fault) {
  switch (fault.kind) {
    case FaultKind::kStop:
    case FaultKind::kCut:
      fault.is_long = NumberBelow(random, 2) == 0;
      // Well within the silence that is allowed, or well beyond.
      fault.seconds = fault.is_long
                          ? silence + 2 + static_cast<double>(NumberBelow(random, 20)) / 10
                          : silence * static_cast<double>(5 + NumberBelow(random, 25)) / 100;
      break;
    case FaultKind::kQuota:
      fault.seconds = 2 + static_cast<double>(NumberBelow(random, 60)) / 10;
      break;
    case FaultKind::kDisk:
      fault.seconds = 1 + static_cast<double>(NumberBelow(random, 40)) / 10;
      break;
    default:
      break;
  }
}

}  // namespace

bool ChaosSchedule::needs_proxies() const {
  return std::any_of(faults.begin(), faults.end(),
                     [](const ChaosFault& fault) { return RowOf(fault.kind).needs_proxy; });
}

ChaosSchedule DrawChaosSchedule(int64_t seed, const std::vector<FaultKind>& kinds, int64_t steps,
                                int workers, double silence) {
  std::vector<FaultKind> possible;
  for (const FaultKind kind : kinds) {
    if (workers > 0 || !RowOf(kind).strikes_worker) possible.push_back(kind);
  }
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  ChaosSchedule schedule;
  schedule.seed = seed;
  const int64_t count = 1 + NumberBelow(random, 3);
  const int64_t first = std::max<int64_t>(1, steps / 20);
  const int64_t span = std::max<int64_t>(1, steps * 4 / 5 - first);
  for (int64_t i = 0; i < count; ++i) {
    ChaosFault fault;
    fault.kind =
        possible[static_cast<size_t>(NumberBelow(random, static_cast<int64_t>(possible.size())))];
    fault.step = first + NumberBelow(random, span);
    fault.worker = static_cast<int>(NumberBelow(random, std::max(1, workers)));
    DrawLength(random, silence, fault);
    schedule.faults.push_back(fault);
  }
  std::stable_sort(schedule.faults.begin(), schedule.faults.end(),
                   [](const ChaosFault& a, const ChaosFault& b) { return a.step < b.step; });
  return schedule;
}

std::string FaultText(const ChaosFault& fault) {
  const char* const name = RowOf(fault.kind).name;
  return fault.seconds > 0 ? absl::StrFormat("%s for %.1f s", name, fault.seconds) : name;
}

}  // namespace weft
