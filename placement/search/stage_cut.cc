#include "placement/search/stage_cut.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace weft {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// How good the best cut of some first units into some first stages is.
struct Partial {
  double slowest = kNever;
  double crossing = 0;  // bytes
  int last_begin = -1;
  bool BetterThan(const Partial& other) const {
    return std::pair(slowest, crossing) < std::pair(other.slowest, other.crossing);
  }
};

double Crossing(const StageFigures& figures, int unit) {
  const PlanningCut& cut = figures.Cut(unit);
  return static_cast<double>(cut.forward_bytes + cut.backward_bytes);
}

void TryAll(const StageFigures& figures, const std::vector<StagePlace>& places,
            double bytes_per_second, std::vector<int>& begins, Partial so_far, Partial& best,
            std::vector<int>& best_begins) {
  const size_t stage = begins.size() - 1;
  const int first = begins.back();
  const int stages = static_cast<int>(places.size());
  const bool is_last = stage + 1 == places.size();
  const int most = figures.units() - (stages - 1 - static_cast<int>(stage));
  for (int last = is_last ? figures.units() : first + 1; last <= most; ++last) {
    if (!StageFits(figures, places[stage], first, last)) continue;
    Partial next = so_far;
    next.slowest = std::max(so_far.slowest,
                            StageSeconds(figures, places[stage], first, last, bytes_per_second));
    if (is_last) {
      if (next.BetterThan(best)) {
        best = next;
        best_begins = begins;
        best_begins.push_back(last);
      }
      return;
    }
    next.crossing += Crossing(figures, last);
    begins.push_back(last);
    TryAll(figures, places, bytes_per_second, begins, next, best, best_begins);
    begins.pop_back();
  }
}

}  // namespace

double StageSeconds(const StageFigures& figures, const StagePlace& place, int first, int last,
                    double bytes_per_second) {
  double seconds = 0;
  for (const int device : place.devices) {
    seconds = std::max(seconds, figures.Figure(first, last, device).Total());
  }
  if (first == 0 || bytes_per_second <= 0) return seconds;
  const PlanningCut& cut = figures.Cut(first);
  const double bytes = static_cast<double>(std::max(cut.forward_bytes, cut.backward_bytes));
  return std::max(seconds, bytes / bytes_per_second);
}

bool StageFits(const StageFigures& figures, const StagePlace& place, int first, int last) {
  return place.memory_limit == 0 ||
         figures.Memory(first, last, place.in_flight).total() <= place.memory_limit;
}

StageCut CutStages(const StageFigures& figures, const std::vector<StagePlace>& places,
                   double bytes_per_second) {
  const int units = figures.units();
  const int stages = static_cast<int>(places.size());
  if (stages > units) return {};
  // best[s][j]: stages [0, s) have units [0, j).
  std::vector<std::vector<Partial>> best(stages + 1, std::vector<Partial>(units + 1));
  best[0][0].slowest = 0;
  for (int s = 1; s <= stages; ++s) {
    for (int j = s; j <= units - (stages - s); ++j) {
      if (s == stages && j < units) continue;
      Partial& target = best[s][j];
      for (int i = j - 1; i >= s - 1; --i) {
        const Partial& before = best[s - 1][i];
        if (!StageFits(figures, places[s - 1], i, j)) {
          // More units only need more, but for the last stage: what little of the loss it has may
          // be too large a segment.
          if (s == stages) continue;
          break;
        }
        const double seconds = StageSeconds(figures, places[s - 1], i, j, bytes_per_second);
        if (before.slowest == kNever) continue;
        const double crossing = before.crossing + (i > 0 ? Crossing(figures, i) : 0);
        const Partial next = {std::max(before.slowest, seconds), crossing, i};
        if (next.BetterThan(target)) target = next;
        if (figures.Figure(i, j, places[s - 1].devices.front()).Total() > target.slowest) break;
      }
    }
  }
  if (best[stages][units].slowest == kNever) return {};
  StageCut cut;
  cut.slowest_seconds = best[stages][units].slowest;
  for (int s = stages, j = units; s > 0; --s) {
    cut.begins.insert(cut.begins.begin(), j);
    j = best[s][j].last_begin;
  }
  cut.begins.insert(cut.begins.begin(), 0);
  return cut;
}

StageCut CutStagesExhaustively(const StageFigures& figures, const std::vector<StagePlace>& places,
                               double bytes_per_second) {
  if (static_cast<int>(places.size()) > figures.units()) return {};
  std::vector<int> begins = {0};
  std::vector<int> best_begins;
  Partial best;
  TryAll(figures, places, bytes_per_second, begins, {0, 0, 0}, best, best_begins);
  if (best_begins.empty()) return {};
  return {best_begins, best.slowest};
}

}  // namespace weft
