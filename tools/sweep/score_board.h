// ScoreBoard: the scores of a sweep's trials, where a trial waits for those before it.
#ifndef WEFT_TOOLS_SWEEP_SCORE_BOARD_H_
#define WEFT_TOOLS_SWEEP_SCORE_BOARD_H_

#include <functional>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "tools/sweep/median_rule.h"

namespace weft {

// Trials report from their own threads. A trial waits for those with smaller numbers alone, and
// these must have been started before it: then none waits for ever. Thread-safe. Borrows the clock.
class ScoreBoard {
 public:
  // `ends_early`: the median rule is on; else nobody waits and none is ended.
  ScoreBoard(int trials, bool more_is_better, bool ends_early, Clock& clock);

  // Trial `trial` (from 0) has this score at its next rung. Waits until every trial before it has
  // come to that rung or has ended, or `stop` is true (asked ten times a second; null: never). The
  // median that ends the trial here; nothing where it goes on. At the last rung nobody waits.
  std::optional<double> Report(int trial, double score, const std::function<bool()>& stop);
  // No more scores will come of this trial: it has ended, however.
  void End(int trial);

  RungScores scores(int trial) const;

 private:
  // Whether all trials before it have come to so many rungs or have ended.
  bool HaveCome(int trial, size_t rungs) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool more_is_better_;
  const bool ends_early_;
  Clock& clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<RungScores> scores_ ABSL_GUARDED_BY(mutex_);  // by trial
  std::vector<bool> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft

#endif  // WEFT_TOOLS_SWEEP_SCORE_BOARD_H_
