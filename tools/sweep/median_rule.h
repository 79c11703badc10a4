// Which trial of a sweep ends early, and which is the best.
#ifndef WEFT_TOOLS_SWEEP_MEDIAN_RULE_H_
#define WEFT_TOOLS_SWEEP_MEDIAN_RULE_H_

#include <optional>
#include <vector>

namespace weft {

// So many trials must have come to a rung before one is ended there: a median of fewer says little.
inline constexpr int kMinEarlierTrials = 3;

// The scores of a trial at its rungs, in their order, as far as it came.
using RungScores = std::vector<double>;

// The median stopping rule (Golovin et al., "Google Vizier: A Service for Black-Box Optimization",
// KDD 2017): a trial ends at a rung if the best of its scores so far is strictly worse than the
// median, over the trials before it that came to the rung, of the mean of their scores up to there.
// `own` ends at the rung; `earlier` are those trials' scores, of those that did not come so far
// fewer. The median, where the trial ends; nothing where it goes on. Of an even number the median
// is the mean of the middle two. REQUIRES: own is not empty and finite.
std::optional<double> MedianThatEnds(const RungScores& own, const std::vector<RungScores>& earlier,
                                     bool more_is_better);

// The index of the best final score, of equal ones the first; -1 where there is none. A trial
// without one, or whose score is not finite, was not finished.
int BestTrial(const std::vector<std::optional<double>>& final_scores, bool more_is_better);

}  // namespace weft

#endif  // WEFT_TOOLS_SWEEP_MEDIAN_RULE_H_
