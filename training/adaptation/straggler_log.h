// StragglerLog: the lines about stragglers that people see: few, and only about lasting changes.
#ifndef WEFT_TRAINING_ADAPTATION_STRAGGLER_LOG_H_
#define WEFT_TRAINING_ADAPTATION_STRAGGLER_LOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "platform/clock.h"
#include "training/adaptation/straggler_detector.h"

namespace weft {

// A worker that stays slow for `kLasting` gets a line. Then there is at most one line of that
// worker in `kInterval`: what changed last, slower again or recovered. Finish says what has not
// been said of workers that are slow still, and sums each worker's slow times up in a line.
//
// One thread calls it. It does not tell who is slow: StragglerDetector does, and at once.
class StragglerLog {
 public:
  static constexpr absl::Duration kLasting = absl::Seconds(2);
  static constexpr absl::Duration kInterval = absl::Seconds(30);

  // Borrows the clock.
  StragglerLog(Clock& clock, std::function<void(const std::string& line)> say);

  // A change of the worker of this name, and the line that describes it.
  void Add(const SpeedChange& change, const std::string& worker, std::string line);
  // Time has passed: says what is due. Called after each step.
  void Update();
  // Something is done about workers that are slow now: says who they are, if nobody has heard yet.
  void SayWhoIsSlow();
  // The run has ended.
  void Finish();

 private:
  struct Worker {
    std::string pending;  // the latest change that has not been said; empty: none
    bool is_slow = false;
    bool was_said = false;      // a line of this worker has been said
    absl::Duration slow_since;  // of the run, while it is slow
    absl::Duration said_at;
    absl::Duration slow_time;  // of all times that it was slow
    int times = 0;
    double factor = 1;  // the largest
  };

  absl::Duration Now() const;
  bool IsDue(const Worker& worker) const;
  void Say(Worker& worker);

  Clock& clock_;
  const std::function<void(const std::string&)> say_;
  const int64_t start_;
  std::map<std::string, Worker> workers_;  // by name: ranks change where a worker is lost
};

}  // namespace weft

#endif  // WEFT_TRAINING_ADAPTATION_STRAGGLER_LOG_H_
