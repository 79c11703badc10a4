#include "training/adaptation/straggler_detector.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace weft {
namespace {

constexpr double kObservationSeconds = 0.05;
constexpr double kSlower = 1.4;  // times as long
constexpr double kUsual = 1.2;
constexpr size_t kNeeded = 3;
constexpr size_t kMaxNeeded = 48;
// A change so many observations after the last one is no noise.
constexpr int64_t kCalm = 100;
// No rank is compared before so many.
constexpr int64_t kMinKnown = 5;
// That the usual is the median of, and that a speed is.
constexpr size_t kMaxKnown = 31;
constexpr size_t kMaxRecent = 8;

template <typename Values>
double Median(const Values& values) {
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double SecondsOf(const RankWork& work) { return work.micro_batch_seconds + work.update_seconds; }

double PerMicroBatch(const RankWork& work) {
  return work.micro_batch_seconds / std::max(1, work.micro_batches);
}

void Remember(double value, std::deque<double>& values) {
  values.push_back(value);
  if (values.size() > kMaxKnown) values.pop_front();
}

}  // namespace

StragglerDetector::StragglerDetector(std::vector<std::vector<int>> peers)
    : peers_(std::move(peers)), ranks_(peers_.size()) {}

void StragglerDetector::BeginProgram() {
  begun_.clear();
  pending_.clear();
}

bool StragglerDetector::Streak::Extend(bool holds, double factor, int64_t step, size_t needed) {
  if (!holds) {
    Clear();
    return false;
  }
  if (factors.empty()) since = step;
  factors.push_back(factor);
  return factors.size() >= needed;
}

std::vector<SpeedChange> StragglerDetector::Add(int64_t step, const std::string& shape,
                                                const std::vector<RankWork>& ranks) {
  if (ranks.size() != ranks_.size() || begun_.insert(shape).second) return {};
  Observation& sum = pending_[shape];
  if (sum.steps == 0) {
    sum.first_step = step;
    sum.ranks.resize(ranks.size());
  }
  ++sum.steps;
  double longest = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    sum.ranks[r].micro_batch_seconds += ranks[r].micro_batch_seconds;
    sum.ranks[r].update_seconds += ranks[r].update_seconds;
    sum.ranks[r].micro_batches += ranks[r].micro_batches;
    longest = std::max(longest, SecondsOf(sum.ranks[r]));
  }
  if (longest < kObservationSeconds) return {};
  const Observation observation = std::exchange(sum, Observation());
  return Judge(step, shape, observation);
}

std::vector<SpeedChange> StragglerDetector::Judge(int64_t step, const std::string& shape,
                                                  const Observation& observation) {
  ++observations_;
  std::vector<Usual>& usual = usual_[shape];
  usual.resize(ranks_.size());
  std::vector<RankSpeed>& speeds = recent_.emplace_back();
  std::vector<SpeedChange> changes;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    const RankWork& work = observation.ranks[rank];
    const RankSpeed speed = {PerMicroBatch(work), work.update_seconds / observation.steps};
    speeds.push_back(speed);
    const std::optional<double> against_usual = AgainstUsual(usual[rank], observation, rank);
    std::optional<double> against_peers;
    if (observations_ > kMinKnown) against_peers = AgainstPeers(observation, rank);
    // What is not usual does not become so.
    if (!against_usual.has_value() || *against_usual < kSlower) {
      Remember(speed.micro_batch_seconds, usual[rank].micro_batch_seconds);
      Remember(speed.update_seconds, usual[rank].update_seconds);
    }
    std::optional<SpeedChange> change =
        JudgeRank(rank, against_usual, against_peers, observation.first_step);
    if (!change.has_value()) continue;
    change->step = step;
    change->seconds = SecondsOf(work) / observation.steps;
    change->usual = change->seconds / change->factor;
    changes.push_back(*change);
  }
  // A change begins with the streak that told it.
  const size_t max_recent = changes.empty() ? kMaxRecent : kNeeded;
  while (recent_.size() > max_recent) recent_.pop_front();
  return changes;
}

std::optional<double> StragglerDetector::AgainstUsual(const Usual& usual,
                                                      const Observation& observation,
                                                      int rank) const {
  const auto known = static_cast<int64_t>(usual.micro_batch_seconds.size());
  if (known < kMinKnown) return std::nullopt;
  const RankWork& work = observation.ranks[rank];
  const double expected = work.micro_batches * Median(usual.micro_batch_seconds) +
                          observation.steps * Median(usual.update_seconds);
  if (!(expected > 0)) return std::nullopt;
  return SecondsOf(work) / expected;
}

// Less than 1.4 unless the others wait for it: who has less to do than its peers may take longer
// for each micro-batch.
std::optional<double> StragglerDetector::AgainstPeers(const Observation& observation,
                                                      int rank) const {
  if (peers_[rank].empty()) return std::nullopt;
  std::vector<double> seconds, micro_batch_seconds;
  for (const int peer : peers_[rank]) {
    seconds.push_back(SecondsOf(observation.ranks[peer]));
    micro_batch_seconds.push_back(PerMicroBatch(observation.ranks[peer]));
  }
  const double work = Median(seconds), micro_batch = Median(micro_batch_seconds);
  if (!(work > 0) || !(micro_batch > 0)) return std::nullopt;
  const double factor = PerMicroBatch(observation.ranks[rank]) / micro_batch;
  const bool is_waited_for = SecondsOf(observation.ranks[rank]) >= kSlower * work;
  return ranks_[rank].state == State::kSlowerThanPeers || is_waited_for ? factor
                                                                        : std::min(factor, kUsual);
}

std::optional<SpeedChange> StragglerDetector::JudgeRank(int rank,
                                                        std::optional<double> against_usual,
                                                        std::optional<double> against_peers,
                                                        int64_t first_step) {
  Rank& state = ranks_[rank];
  const double own = against_usual.value_or(1), peers = against_peers.value_or(1);
  const bool was_slower = state.state == State::kSlower;
  // Slower still, or less so, is a change too.
  const bool differs = own >= kSlower * state.factor || own * kSlower <= state.factor;
  const size_t needed = was_slower ? kNeeded : state.needed;
  if (state.slower.Extend(own >= kSlower && (!was_slower || differs), own, first_step, needed)) {
    return Tell(rank, SpeedChange::Kind::kSlower, state.slower);
  }
  if (state.behind.Extend(state.state == State::kUsual && peers >= kSlower, peers, first_step,
                          state.needed)) {
    return Tell(rank, SpeedChange::Kind::kSlowerThanPeers, state.behind);
  }
  const double now = was_slower ? own : peers;
  if (state.usual.Extend(state.state != State::kUsual && now < kUsual, now, first_step, kNeeded)) {
    return Tell(rank, SpeedChange::Kind::kRecovered, state.usual);
  }
  return std::nullopt;
}

std::optional<SpeedChange> StragglerDetector::Tell(int rank, SpeedChange::Kind kind,
                                                   const Streak& streak) {
  Rank& state = ranks_[rank];
  SpeedChange change;
  change.kind = kind;
  change.rank = rank;
  change.since = streak.since;
  change.factor = Median(streak.factors);
  const bool recovered = kind == SpeedChange::Kind::kRecovered;
  const bool is_calm = observations_ - state.told >= kCalm;
  if (is_calm) state.needed = kNeeded;
  if (!is_calm && recovered) state.needed = std::min(2 * state.needed, kMaxNeeded);
  state.told = observations_;
  state.factor = recovered ? 1 : change.factor;
  state.state = recovered                            ? State::kUsual
                : kind == SpeedChange::Kind::kSlower ? State::kSlower
                                                     : State::kSlowerThanPeers;
  state.slower.Clear();
  state.behind.Clear();
  state.usual.Clear();
  return change;
}

std::vector<RankSpeed> StragglerDetector::Speeds() const {
  std::vector<RankSpeed> speeds;
  if (recent_.size() < kNeeded) return speeds;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    std::vector<double> micro_batch, update;
    for (const std::vector<RankSpeed>& observed : recent_) {
      micro_batch.push_back(observed[rank].micro_batch_seconds);
      update.push_back(observed[rank].update_seconds);
    }
    speeds.push_back({Median(micro_batch), Median(update)});
  }
  return speeds;
}

}  // namespace weft
