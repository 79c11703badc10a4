// StageCosts: what any run of units would cost as a pipeline stage.
#ifndef WEFT_PLACEMENT_SEARCH_STAGE_COSTS_H_
#define WEFT_PLACEMENT_SEARCH_STAGE_COSTS_H_

#include <cstdint>
#include <vector>

#include "placement/search/collective_costs.h"
#include "placement/search/plan_choice.h"
#include "placement/search/planning_graph.h"
#include "placement/search/stage_traffic.h"

namespace weft {

// One micro-batch on one rank, but for `update`: once per step.
struct StageSeconds {
  double forward = 0;
  double backward = 0;
  double weight_gradient = 0;
  double update = 0;
  double forward_collectives = 0;
  double backward_collectives = 0;
  double Total() const {
    return forward + backward + weight_gradient + forward_collectives + backward_collectives;
  }
};

// Memory of a rank that runs the units.
struct StageMemory {
  int64_t parameters = 0;   // and other variables
  int64_t state = 0;        // of the optimizer
  int64_t gradients = 0;    // summed over micro-batches
  int64_t activations = 0;  // kept for the backward pass
  int64_t working = 0;      // of the node, or recomputed segment, that takes most
  int64_t total() const { return parameters + state + gradients + activations + working; }
};

// Sums over the units of a planning graph, for one tensor-parallel group, mesh and ZeRO stage.
// Borrows the graph, and copies what ZeRO splits.
class StageCosts {
 public:
  StageCosts(const PlanningGraph& graph, const PlanChoice& choice, CollectiveCosts& collectives,
             DataSplit split = {});

  int units() const { return static_cast<int>(graph_.units.size()); }
  const PlanningGraph& graph() const { return graph_; }
  // Of units [first, last) on a device of the profile.
  StageSeconds Seconds(int first, int last, int device) const;
  // StageSeconds::Total of the same.
  double MicroBatchSeconds(int first, int last, int device) const {
    const double once = once_[device][last] - once_[device][first];
    if (segments_ == 0) return once;
    return once + RecomputedShare(last == units()) * (again_[device][last] - again_[device][first]);
  }
  // At a place of the pipeline where so many micro-batches are in flight.
  StageMemory Memory(int first, int last, double in_flight) const;
  // Trainable parameters of a shard, which their gradients are as large as.
  int64_t GradientBytes(int first, int last) const { return gradients_[last] - gradients_[first]; }
  // Of those, what ZeRO splits over the replicas.
  int64_t SplitBytes(int first, int last) const { return split_[last] - split_[first]; }
  // How many parameters that is.
  int64_t SplitParameters(int first, int last) const {
    return split_parameters_[last] - split_parameters_[first];
  }
  const DataSplit& split() const { return split_over_data_; }
  const PlanningCut& Cut(int unit) const { return graph_.cuts[unit]; }
  // The forward pass that runs again.
  double RecomputedShare(bool is_last_stage) const;

 private:
  void SumSeconds(const PlanChoice& choice);
  void SumCollectives(const PlanChoice& choice, CollectiveCosts& collectives);
  // What seconds and collectives make together.
  void SumMicroBatch();
  void SumVariables();
  void FindTransient();
  int64_t WorkingBytes(int first, int last) const;

  const PlanningGraph& graph_;
  const DataSplit split_over_data_;
  const int segments_;
  const bool is_fresh_;  // the last segment of the last stage does not run again
  const int zero_;
  const int replicas_;
  std::vector<std::vector<double>> forward_;  // by device, then units before
  std::vector<std::vector<double>> backward_;
  std::vector<std::vector<double>> weight_gradient_;
  std::vector<std::vector<double>> update_;
  std::vector<std::vector<double>> once_;   // all of a micro-batch
  std::vector<std::vector<double>> again_;  // of that, what recomputation runs again
  std::vector<double> forward_collectives_;
  std::vector<double> backward_collectives_;
  std::vector<int64_t> parameters_;
  std::vector<int64_t> state_;
  std::vector<int64_t> gradients_;
  std::vector<int64_t> split_;
  std::vector<int64_t> split_parameters_;
  std::vector<int64_t> kept_;
  std::vector<std::vector<int64_t>> transient_;  // [k][i]: most of 2^k units from i on
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_STAGE_COSTS_H_
