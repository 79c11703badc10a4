#include "tools/sweep/rungs.h"

#include <limits>

namespace weft {

double RungPart(int rung) { return 1.0 / static_cast<double>(1 << (kRungs - 1 - rung)); }

int64_t SamplesOf(int64_t steps, const std::function<int64_t(int64_t)>& batch_of) {
  int64_t samples = 0;
  for (int64_t step = 0; step < steps; ++step) samples += batch_of(step);
  return samples;
}

std::vector<int64_t> RungSteps(int64_t steps, const std::function<int64_t(int64_t)>& batch_of) {
  const int64_t all = SamplesOf(steps, batch_of);
  std::vector<int64_t> rungs;
  int64_t done = 0;
  int64_t seen = 0;
  for (int rung = 0; rung + 1 < kRungs; ++rung) {
    const int64_t parts = int64_t{1} << (kRungs - 1 - rung);
    // seen / all >= 1 / parts, without rounding.
    while (done < steps && (done == 0 || seen * parts < all)) seen += batch_of(done++);
    rungs.push_back(done);
  }
  rungs.push_back(steps);
  return rungs;
}

int64_t StepsForBatch(int64_t steps, int64_t smallest_batch, int64_t batch) {
  // Without a product that could overflow.
  const int64_t whole = steps / batch * smallest_batch;
  const int64_t rest = steps % batch * smallest_batch;
  return whole + (rest + batch - 1) / batch;
}

void LossWindow::Add(double loss, int64_t samples) {
  steps_.emplace_back(loss, samples);
  kept_ += samples;
  while (steps_.size() > 1 && kept_ - steps_.front().second >= samples_) {
    kept_ -= steps_.front().second;
    steps_.pop_front();
  }
}

double LossWindow::Mean() const {
  if (steps_.empty()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (const auto& [loss, samples] : steps_) sum += loss * static_cast<double>(samples);
  return sum / static_cast<double>(kept_);
}

}  // namespace weft
