// PlanningGraph: a training graph as a search sees it: what each unit of the forward pass, with its
// share of the backward pass and of the updates, costs one shard of a tensor-parallel group for one
// micro-batch.
#ifndef WEFT_PLACEMENT_SEARCH_PLANNING_GRAPH_H_
#define WEFT_PLACEMENT_SEARCH_PLANNING_GRAPH_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "placement/cost/cost_model.h"
#include "placement/search/collective_costs.h"
#include "placement/search/node_costs.h"
#include "placement/search/unit_layout.h"
#include "placement/sharding/sharding_propagation.h"

namespace weft {

// A parameter with its optimizer state, as a shard of the tensor axis has it; or other state.
struct PlannedVariable {
  int number = 0;  // in Graph::variables
  int64_t parameter_bytes = 0;
  int64_t state_bytes = 0;
  bool trainable = false;
};

// A sum over the micro-batches (Accumulate), as a shard of the tensor axis has it.
struct PlannedSum {
  ValueId value;  // of PlanningGraph::graph
  int unit = 0;
  int64_t bytes = 0;
  DType dtype = DType::kFloat32;
  bool is_first = false;     // IsFirstSum
  std::vector<int> readers;  // other units that read it
};

// A value that other units than its own read, as a shard has it.
struct PlannedTransfer {
  int64_t bytes = 0;
  int unit = 0;                // that makes it; of a variable: that owns it
  Phase made = Phase::kBegin;  // kForward, kBackward; kBegin: a variable
  std::vector<int> readers;    // the other units, ascending
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

// What goes from the units before a place to those from it on, and back. A value that skips stages
// counts on each cut that it crosses; PlanningGraph::transfers says where it goes.
struct PlanningCut {
  int64_t forward_bytes = 0;
  int64_t backward_bytes = 0;
};

struct PlanningGraph {
  int64_t samples = 0;  // of a micro-batch
  int shards = 1;       // of the tensor axis
  std::vector<PlanningUnit> units;
  std::vector<PlanningCut> cuts;  // before unit i; one more at the end; the first and last are 0
  // First ones in the order of the step; then the others in the order in which the backward pass
  // of a unit completes them.
  std::vector<PlannedSum> sums;
  std::vector<PlannedTransfer> transfers;
  std::map<std::string, AxisSharding> tensor_shardings;  // that it was made with
  // What it was made of, with nodes taken apart as the shardings ask for it.
  const Graph* graph = nullptr;
  std::shared_ptr<const Graph> expanded;  // that is `graph`, where it is not the caller's
  ShardingDecisions shardings;            // of it

  // Forward and backward together, of all units.
  double Seconds(int device) const;
};

struct PlanningOptions {
  int shards = 1;
  std::vector<int> threads;  // by worker
  int in_flight = 1;         // micro-batches of which a worker holds the activations
  std::map<std::string, AxisSharding> tensor_shardings;
  NodeCostsFactory node_costs;  // as SearchOptions::node_costs
};

// `graph` is a training graph with concrete shapes for a micro-batch of `samples`, its nodes placed
// in units (PlaceInUnits); borrowed by the result. Nodes are asked for their cost with the local
// shapes that PropagateShardings gives them, each class once.
absl::StatusOr<PlanningGraph> MakePlanningGraph(const Graph& graph, int64_t samples,
                                                const UnitLayout& layout, const CostModel& cost,
                                                const PlanningOptions& options);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_PLANNING_GRAPH_H_
