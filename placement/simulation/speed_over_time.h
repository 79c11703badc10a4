// How many times its usual time something takes, as virtual time goes on. Internal to simulation/.
#ifndef WEFT_PLACEMENT_SIMULATION_SPEED_OVER_TIME_H_
#define WEFT_PLACEMENT_SIMULATION_SPEED_OVER_TIME_H_

#include <algorithm>
#include <utility>
#include <vector>

namespace weft {

// How fast a rank or link is at each time: a script makes it slower.
class SpeedOverTime {
 public:
  // From `time` until the next change. Of two changes at one time, the later call holds.
  void SlowFrom(double time, double factor) {
    const auto after = std::upper_bound(
        changes_.begin(), changes_.end(), time,
        [](double at, const std::pair<double, double>& change) { return at < change.first; });
    changes_.insert(after, {time, factor});
  }

  double FactorAt(double time) const {
    double factor = 1;
    for (const auto& [from, changed] : changes_) {
      if (from > time) break;
      factor = changed;
    }
    return factor;
  }

  // When work of `seconds` usual time ends that begins at `start`.
  double EndOf(double start, double seconds) const {
    if (changes_.empty()) return start + seconds;
    double now = start;
    for (const auto& [from, changed] : changes_) {
      if (from <= now) continue;
      const double factor = FactorAt(now);
      if (now + seconds * factor <= from) return now + seconds * factor;
      seconds -= (from - now) / factor;
      now = from;
    }
    return now + seconds * FactorAt(now);
  }

 private:
  std::vector<std::pair<double, double>> changes_;  // (from, factor), by time
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SIMULATION_SPEED_OVER_TIME_H_
