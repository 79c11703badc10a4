// Where the trials of a sweep are compared, and the training loss there.
#ifndef WEFT_TOOLS_SWEEP_RUNGS_H_
#define WEFT_TOOLS_SWEEP_RUNGS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

namespace weft {

// A trial is compared with others at so many rungs: after an eighth, a quarter, half and all of its
// data. Each doubles the data, as in successive halving (Jamieson and Talwalkar, AISTATS 2016).
inline constexpr int kRungs = 4;

// The part of all data at a rung, 0 <= rung < kRungs: 1/8, 1/4, 1/2, 1.
double RungPart(int rung);

// For each rung, the number of steps after which a trial of `steps` steps has first seen its part
// of all samples; `batch_of` says how many samples a step has, counted from 0. The last is `steps`.
// Of short trials several rungs are one. Ascending. REQUIRES: steps >= 1.
std::vector<int64_t> RungSteps(int64_t steps, const std::function<int64_t(int64_t)>& batch_of);

// The samples of steps [0, steps).
int64_t SamplesOf(int64_t steps, const std::function<int64_t(int64_t)>& batch_of);

// How many steps of `batch` samples see as much data as `steps` steps of `smallest_batch` samples:
// their quotient, rounded up. REQUIRES: all >= 1.
int64_t StepsForBatch(int64_t steps, int64_t smallest_batch, int64_t batch);

// The mean loss of the last steps that have together at least a number of samples, and one step at
// least; each step counts by its samples. A value. Not thread-safe.
class LossWindow {
 public:
  explicit LossWindow(int64_t samples) : samples_(samples) {}
  void Add(double loss, int64_t samples);
  // NaN before the first step.
  double Mean() const;

 private:
  int64_t samples_;
  int64_t kept_ = 0;  // samples
  std::deque<std::pair<double, int64_t>> steps_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_SWEEP_RUNGS_H_
