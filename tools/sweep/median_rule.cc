#include "tools/sweep/median_rule.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace weft {
namespace {

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

std::optional<double> MedianThatEnds(const RungScores& own, const std::vector<RungScores>& earlier,
                                     bool more_is_better) {
  std::vector<double> means;
  for (const RungScores& scores : earlier) {
    if (scores.size() < own.size()) continue;
    const auto end = scores.begin() + static_cast<std::ptrdiff_t>(own.size());
    means.push_back(std::accumulate(scores.begin(), end, 0.0) / static_cast<double>(own.size()));
  }
  if (means.size() < static_cast<size_t>(kMinEarlierTrials)) return std::nullopt;
  const double median = MedianOf(std::move(means));
  const auto [low, high] = std::minmax_element(own.begin(), own.end());
  const bool is_worse = more_is_better ? *high < median : *low > median;
  return is_worse ? std::optional<double>(median) : std::nullopt;
}

int BestTrial(const std::vector<std::optional<double>>& final_scores, bool more_is_better) {
  int best = -1;
  for (size_t i = 0; i < final_scores.size(); ++i) {
    if (!final_scores[i].has_value() || !std::isfinite(*final_scores[i])) continue;
    const double score = *final_scores[i];
    const bool is_better =
        best < 0 || (more_is_better ? score > *final_scores[static_cast<size_t>(best)]
                                    : score < *final_scores[static_cast<size_t>(best)]);
    if (is_better) best = static_cast<int>(i);
  }
  return best;
}

}  // namespace weft
