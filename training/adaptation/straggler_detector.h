// StragglerDetector: finds workers that have become slower, from the times of their steps.
#ifndef WEFT_TRAINING_ADAPTATION_STRAGGLER_DETECTOR_H_
#define WEFT_TRAINING_ADAPTATION_STRAGGLER_DETECTOR_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace weft {

// What a rank worked in a step. What it waited for its peers is no part of it.
struct RankWork {
  double micro_batch_seconds = 0;  // in its micro-batches, all of them
  double update_seconds = 0;       // once per step, whatever the micro-batches
  int micro_batches = 0;
};

// How fast a rank is now, per micro-batch and per step.
struct RankSpeed {
  double micro_batch_seconds = 0;
  double update_seconds = 0;
};

// A rank that has become slower, or has recovered.
struct SpeedChange {
  enum class Kind {
    kSlower,           // than the rank was before
    kSlowerThanPeers,  // than those that do the same on other samples
    kRecovered,        // works as before, or as its peers, again
  };
  Kind kind = Kind::kSlower;
  int rank = 0;
  int64_t since = 0;   // the first step (from 0) in which it was so
  int64_t step = 0;    // the step that told
  double factor = 1;   // how many times as long its work takes
  double seconds = 0;  // of its work in a step, now
  double usual = 0;    // the same as it was before, or as its peers would do it
};

// Compares what the ranks work in each step with what they worked before, and with each other.
//
// Steps are looked at together until one rank has worked 50 ms in them: an observation. A rank is
// slower when three observations in a row take 1.4 times as long as the median of its earlier ones
// (as its peers, in the same steps); it has recovered when three take less than 1.2 times. So one
// whose steps take 50 ms or more is named within 5 steps, whatever the noise of a single step. One
// that recovers soon must be slower for longer the next time: noise is told less and less often.
//
// Pure: no clock, no threads; the same steps give the same changes.
class StragglerDetector {
 public:
  // peers[r]: the ranks that do the same work as r on other samples, r itself left out.
  explicit StragglerDetector(std::vector<std::vector<int>> peers);

  // What all ranks worked in the next step. Steps of one `shape` have equal work per micro-batch.
  std::vector<SpeedChange> Add(int64_t step, const std::string& shape,
                               const std::vector<RankWork>& ranks);
  // The next step of each shape is the first of a program: it is not looked at.
  void BeginProgram();

  // By rank: medians of the observations since the last change, eight at most; empty before there
  // are three.
  std::vector<RankSpeed> Speeds() const;
  // Since the first step.
  int64_t observations() const { return observations_; }

 private:
  // A few steps of one shape, by rank.
  struct Observation {
    int64_t first_step = 0;
    int steps = 0;
    std::vector<RankWork> ranks;  // sums
  };
  // What a rank takes when nothing is wrong: its latest observations of a shape.
  struct Usual {
    std::deque<double> micro_batch_seconds;
    std::deque<double> update_seconds;
  };
  // Observations in a row of which something holds.
  struct Streak {
    int64_t since = 0;
    std::vector<double> factors;
    // The streak is `needed` long, or longer.
    bool Extend(bool holds, double factor, int64_t step, size_t needed);
    void Clear() { factors.clear(); }
  };
  enum class State { kUsual, kSlower, kSlowerThanPeers };
  struct Rank {
    State state = State::kUsual;
    double factor = 1;  // that was told last
    Streak slower, behind, usual;
    size_t needed = 3;  // observations until it is slower
    int64_t told = 0;   // the observation at which it was, or had recovered
  };

  std::vector<SpeedChange> Judge(int64_t step, const std::string& shape,
                                 const Observation& observation);
  // How many times as long as usual the rank has worked; none before that is known.
  std::optional<double> AgainstUsual(const Usual& usual, const Observation& observation,
                                     int rank) const;
  std::optional<double> AgainstPeers(const Observation& observation, int rank) const;
  std::optional<SpeedChange> JudgeRank(int rank, std::optional<double> against_usual,
                                       std::optional<double> against_peers, int64_t first_step);
  std::optional<SpeedChange> Tell(int rank, SpeedChange::Kind kind, const Streak& streak);

  std::vector<std::vector<int>> peers_;
  std::set<std::string> begun_;                 // shapes whose program has run a step
  std::map<std::string, Observation> pending_;  // by shape
  std::map<std::string, std::vector<Usual>> usual_;
  std::vector<Rank> ranks_;
  std::deque<std::vector<RankSpeed>> recent_;  // since the last change
  int64_t observations_ = 0;
};

}  // namespace weft

#endif  // WEFT_TRAINING_ADAPTATION_STRAGGLER_DETECTOR_H_
