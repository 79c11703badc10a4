#include "placement/search/stage_costs.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "placement/rules/recomputed_segments.h"

namespace weft {
namespace {

template <typename T, typename Fn>
std::vector<T> PrefixSums(const PlanningGraph& graph, Fn of_unit) {
  std::vector<T> sums = {T{}};
  for (const PlanningUnit& unit : graph.units) sums.push_back(sums.back() + of_unit(unit));
  return sums;
}

}  // namespace

StageCosts::StageCosts(const PlanningGraph& graph, const PlanChoice& choice,
                       CollectiveCosts& collectives, DataSplit split)
    : graph_(graph),
      split_over_data_(std::move(split)),
      segments_(choice.recompute_segments),
      is_fresh_(LastSegmentIsFresh(choice.num_stages(), choice.schedule)),
      zero_(choice.zero),
      replicas_(choice.mesh.data) {
  SumSeconds(choice);
  SumCollectives(choice, collectives);
  SumMicroBatch();
  SumVariables();
  kept_ = PrefixSums<int64_t>(graph, [](const PlanningUnit& unit) { return unit.kept_bytes; });
  FindTransient();
}

void StageCosts::SumSeconds(const PlanChoice& choice) {
  // The first micro-batch has nothing to add to.
  const double own = std::max(1, choice.MaxMicroBatches());
  const double added = (own - 1) / own;
  for (size_t device = 0; device < graph_.units.front().forward.size(); ++device) {
    const auto sum = [&](std::vector<double> PlanningUnit::*seconds) {
      return PrefixSums<double>(graph_,
                                [&](const PlanningUnit& unit) { return (unit.*seconds)[device]; });
    };
    forward_.push_back(sum(&PlanningUnit::forward));
    backward_.push_back(sum(&PlanningUnit::backward));
    weight_gradient_.push_back(PrefixSums<double>(graph_, [&](const PlanningUnit& unit) {
      const double more = unit.accumulation.empty() ? 0 : unit.accumulation[device];
      return unit.weight_gradient[device] + added * more;
    }));
    update_.push_back(sum(&PlanningUnit::update));
  }
}

void StageCosts::SumCollectives(const PlanChoice& choice, CollectiveCosts& collectives) {
  std::vector<int> group;
  for (int shard = 0; shard < choice.mesh.tensor; ++shard) {
    group.push_back(choice.WorkerAt(0, shard, 0));
  }
  const auto sum = [&](std::map<CollectiveUse, int> PlanningUnit::*uses) {
    return PrefixSums<double>(graph_, [&](const PlanningUnit& unit) {
      double seconds = 0;
      for (const auto& [use, count] : unit.*uses)
        seconds += count * collectives.Seconds(use, group);
      return seconds;
    });
  };
  forward_collectives_ = sum(&PlanningUnit::forward_collectives);
  backward_collectives_ = sum(&PlanningUnit::backward_collectives);
}

void StageCosts::SumMicroBatch() {
  for (size_t device = 0; device < forward_.size(); ++device) {
    once_.emplace_back(units() + 1);
    again_.emplace_back(units() + 1);
    for (int i = 0; i <= units(); ++i) {
      again_[device][i] = forward_[device][i] + forward_collectives_[i];
      once_[device][i] = again_[device][i] + backward_[device][i] + weight_gradient_[device][i] +
                         backward_collectives_[i];
    }
  }
}

void StageCosts::SumVariables() {
  const auto sum = [this](auto of_variable) {
    return PrefixSums<int64_t>(graph_, [&](const PlanningUnit& unit) {
      int64_t bytes = 0;
      for (const PlannedVariable& variable : unit.variables) bytes += of_variable(variable);
      return bytes;
    });
  };
  const auto is_split = [this](const PlannedVariable& v) { return split_over_data_.Has(v); };
  parameters_ = sum([&](const PlannedVariable& v) {
    return zero_ == 3 && is_split(v) ? v.parameter_bytes / replicas_ : v.parameter_bytes;
  });
  state_ = sum([&](const PlannedVariable& v) {
    return is_split(v) ? v.state_bytes / replicas_ : v.state_bytes;
  });
  gradients_ = sum([](const PlannedVariable& v) { return v.trainable ? v.parameter_bytes : 0; });
  split_ = sum([&](const PlannedVariable& v) { return is_split(v) ? v.parameter_bytes : 0; });
  split_parameters_ =
      sum([&](const PlannedVariable& v) { return v.trainable && is_split(v) ? 1 : 0; });
}

void StageCosts::FindTransient() {
  transient_.emplace_back();
  for (const PlanningUnit& unit : graph_.units) transient_[0].push_back(unit.transient_bytes);
  for (int half = 1; 2 * half <= units(); half *= 2) {
    const std::vector<int64_t>& below = transient_.back();
    std::vector<int64_t> row;
    for (int i = 0; i + 2 * half <= units(); ++i)
      row.push_back(std::max(below[i], below[i + half]));
    transient_.push_back(std::move(row));
  }
}

int64_t StageCosts::WorkingBytes(int first, int last) const {
  const int level = std::bit_width(static_cast<unsigned>(last - first)) - 1;
  const std::vector<int64_t>& row = transient_[level];
  return std::max(row[first], row[last - (1 << level)]);
}

double StageCosts::RecomputedShare(bool is_last_stage) const {
  if (segments_ == 0) return 0;
  return is_last_stage && is_fresh_ ? static_cast<double>(segments_ - 1) / segments_ : 1;
}

StageSeconds StageCosts::Seconds(int first, int last, int device) const {
  const auto between = [&](const std::vector<double>& sums) { return sums[last] - sums[first]; };
  StageSeconds seconds;
  seconds.forward = between(forward_[device]);
  seconds.backward = between(backward_[device]);
  seconds.weight_gradient = between(weight_gradient_[device]);
  seconds.update = between(update_[device]);
  if (zero_ > 0 && replicas_ > 1 && GradientBytes(first, last) > 0) {
    const double split = static_cast<double>(SplitBytes(first, last)) /
                         static_cast<double>(GradientBytes(first, last));
    seconds.update *= 1 - split + split / replicas_;
  }
  seconds.forward_collectives = between(forward_collectives_);
  seconds.backward_collectives = between(backward_collectives_);
  const double again = RecomputedShare(last == units());
  seconds.backward += again * seconds.forward;
  seconds.backward_collectives += again * seconds.forward_collectives;
  return seconds;
}

StageMemory StageCosts::Memory(int first, int last, double in_flight) const {
  StageMemory memory;
  memory.parameters = parameters_[last] - parameters_[first];
  if (zero_ == 3) memory.parameters += SplitBytes(first, last);  // gathered for the step
  memory.state = state_[last] - state_[first];
  memory.gradients = GradientBytes(first, last);
  memory.working = WorkingBytes(first, last);
  const int64_t kept = kept_[last] - kept_[first];
  int64_t per_micro_batch = kept;
  if (segments_ > 0) {
    // What enters each segment; one segment is computed anew at a time.
    // Fewer units than segments are a segment each.
    const int segments = std::min(segments_, last - first);
    int64_t entering = graph_.cuts[first].forward_bytes;
    for (int k = 1; k < segments; ++k) {
      const int at = first + (last - first) * k / segments;
      entering += graph_.cuts[at].forward_bytes;
    }
    per_micro_batch = std::min(kept, entering);
    memory.working += (kept + segments_ - 1) / segments_;
  }
  memory.activations = static_cast<int64_t>(in_flight * static_cast<double>(per_micro_batch));
  return memory;
}

}  // namespace weft
