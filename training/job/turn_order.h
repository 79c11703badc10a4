// TurnOrder: which of several updates a step makes.
#ifndef WEFT_TRAINING_JOB_TURN_ORDER_H_
#define WEFT_TRAINING_JOB_TURN_ORDER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace weft {

// A step of a job as the step of one of its updates.
struct Turn {
  size_t update = 0;
  int64_t step = 0;  // from 0: so many steps the update has made before
};

// Updates take turns: each makes its steps in a row, and behind the last one a new cycle begins. A
// value.
class TurnOrder {
 public:
  // `steps`: in a row, by update. REQUIRES: there is one, and all are 1 or more.
  explicit TurnOrder(std::vector<int64_t> steps) : steps_(std::move(steps)) {
    for (const int64_t own : steps_) cycle_ += own;
  }

  // Steps of all updates together, each in its turn.
  int64_t cycle() const { return cycle_; }
  // The step `step` of the job, from 0.
  Turn At(int64_t step) const {
    int64_t place = step % cycle_;
    size_t update = 0;
    while (place >= steps_[update]) place -= steps_[update++];
    return {update, step / cycle_ * steps_[update] + place};
  }
  // How many of the first `steps` steps of the job are of this update.
  int64_t StepsOf(size_t update, int64_t steps) const {
    int64_t before = 0;
    for (size_t i = 0; i < update; ++i) before += steps_[i];
    const int64_t own = steps_[update];
    return steps / cycle_ * own + std::clamp<int64_t>(steps % cycle_ - before, 0, own);
  }

 private:
  std::vector<int64_t> steps_;
  int64_t cycle_ = 0;
};

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_TURN_ORDER_H_
