// PlanningGraph: a training graph as a search sees it: what each unit of the forward pass, with its
// share of the backward pass and of the updates, costs one shard of a tensor-parallel group for one
// micro-batch.
#ifndef WEFT_PLACEMENT_SEARCH_PLANNING_GRAPH_H_
#define WEFT_PLACEMENT_SEARCH_PLANNING_GRAPH_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "placement/cost/cost_model.h"
#include "placement/search/collective_costs.h"
#include "placement/search/unit_layout.h"

namespace weft {

// A parameter with its optimizer state, as a shard of the tensor axis has it; or other state (with
// no rows to split).
struct PlannedVariable {
  int64_t rows = 0;  // of axis 0; 0: replicas keep it whole
  int64_t parameter_bytes = 0;
  int64_t state_bytes = 0;
  bool trainable = false;
};

// All seconds by device of the cluster's profile.
struct PlanningUnit {
  std::vector<double> forward;
  std::vector<double> backward;         // what earlier units wait for
  std::vector<double> weight_gradient;  // the rest of the backward pass
  std::vector<double> accumulation;     // adding its sums to those of the micro-batches before
  std::vector<double> update;           // once per step
  // Over the tensor axis: how many of each.
  std::map<CollectiveUse, int> forward_collectives;
  std::map<CollectiveUse, int> backward_collectives;
  std::vector<PlannedVariable> variables;
  int64_t kept_bytes = 0;       // made here or received, read by its backward pass
  int64_t transient_bytes = 0;  // most that one node reads and makes
};

// What goes from the units before a place to those from it on, and back.
struct PlanningCut {
  int64_t forward_bytes = 0;
  int forward_values = 0;
  int64_t backward_bytes = 0;
  int backward_values = 0;
};

struct PlanningGraph {
  int64_t samples = 0;  // of a micro-batch
  int shards = 1;       // of the tensor axis
  std::vector<PlanningUnit> units;
  std::vector<PlanningCut> cuts;  // before unit i; one more at the end; the first and last are 0
  std::map<std::string, AxisSharding> tensor_shardings;  // that it was made with

  // Forward and backward together, of all units.
  double Seconds(int device) const;
};

struct PlanningOptions {
  int shards = 1;
  std::vector<int> threads;  // by worker
  int in_flight = 1;         // micro-batches of which a worker holds the activations
  std::map<std::string, AxisSharding> tensor_shardings;
  bool fused_kernels = false;  // as SearchOptions::fused_kernels
};

// `graph` is a training graph with concrete shapes for a micro-batch of `samples`. Nodes are asked
// for their cost with the local shapes that PropagateShardings gives them, each class once.
absl::StatusOr<PlanningGraph> MakePlanningGraph(const Graph& graph, int64_t samples,
                                                const UnitLayout& layout, const CostModel& cost,
                                                const PlanningOptions& options);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_PLANNING_GRAPH_H_
