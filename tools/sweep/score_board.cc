#include "tools/sweep/score_board.h"

#include "absl/time/time.h"
#include "tools/sweep/rungs.h"

namespace weft {
namespace {

// How often a trial that waits looks whether it shall stop.
constexpr absl::Duration kStopInterval = absl::Milliseconds(100);

}  // namespace

ScoreBoard::ScoreBoard(int trials, bool more_is_better, bool ends_early, Clock& clock)
    : more_is_better_(more_is_better),
      ends_early_(ends_early),
      clock_(clock),
      scores_(static_cast<size_t>(trials)),
      ended_(static_cast<size_t>(trials), false) {}

bool ScoreBoard::HaveCome(int trial, size_t rungs) const {
  for (size_t i = 0; i < static_cast<size_t>(trial); ++i) {
    if (!ended_[i] && scores_[i].size() < rungs) return false;
  }
  return true;
}

std::optional<double> ScoreBoard::Report(int trial, double score,
                                         const std::function<bool()>& stop) {
  MutexLock lock(mutex_);
  RungScores& own = scores_[static_cast<size_t>(trial)];
  own.push_back(score);
  changed_.NotifyAll();
  const size_t rungs = own.size();
  if (!ends_early_ || rungs >= static_cast<size_t>(kRungs)) return std::nullopt;
  while (!HaveCome(trial, rungs)) {
    if (stop != nullptr && stop()) return std::nullopt;
    clock_.WaitUntil(changed_, mutex_, clock_.Now() + kStopInterval);
  }
  const std::vector<RungScores> earlier(scores_.begin(), scores_.begin() + trial);
  return MedianThatEnds(own, earlier, more_is_better_);
}

void ScoreBoard::End(int trial) {
  MutexLock lock(mutex_);
  ended_[static_cast<size_t>(trial)] = true;
  changed_.NotifyAll();
}

RungScores ScoreBoard::scores(int trial) const {
  MutexLock lock(mutex_);
  return scores_[static_cast<size_t>(trial)];
}

}  // namespace weft
