// StepLayout: every decision about one kind of step that is the same for all ranks. Internal to
// placement/.
#ifndef WEFT_PLACEMENT_PIPELINE_STEP_LAYOUT_H_
#define WEFT_PLACEMENT_PIPELINE_STEP_LAYOUT_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/inference.h"
#include "graph/plan.h"
#include "placement/graph_views/micro_batches.h"
#include "placement/graph_views/step_shape.h"
#include "placement/rules/stage_transfers.h"
#include "placement/sharding/data_sharding.h"
#include "placement/sharding/sharding_propagation.h"

namespace weft {

// A value that one place on the pipeline axis sends to another, between ranks of equal data and
// tensor coordinates.
struct StageEdge {
  ValueId value;
  int from = 0;
  int to = 0;
  // Of Send and Recv, and which of the stages of `to` reads it first. kBegin and kUpdate: once per
  // step.
  Phase phase = Phase::kForward;
  int stage = 0;
  // Channel of data coordinate d and tensor coordinate t: first_channel + d * mesh.tensor + t.
  int first_channel = 0;
};

// Edges in a fixed order, found by value and receiving place.
class StageEdges {
 public:
  // If the edge exists already, it keeps the earlier of the two reads (FirstRead).
  void Add(ValueId value, int from, int to, const StageRead& read);
  // Null when there is none.
  const StageEdge* Find(ValueId value, int to) const;
  // The edges that begin with `value` at its home, in the order added.
  std::vector<const StageEdge*> From(ValueId value) const;
  // Numbers the channels; returns the first free number after them.
  int NumberChannels(int first, int per_edge);
  const std::vector<StageEdge>& all() const { return edges_; }

 private:
  std::vector<StageEdge> edges_;
  std::map<std::pair<ValueId, int>, size_t> index_;
};

// The logical graph for one micro-batch size: concrete global shapes, and how all is sharded.
struct SizedGraph {
  int64_t samples = 0;
  Graph graph;
  ShardingDecisions shardings;
  // Forward ones from the first stage to the last, then backward ones from the last to the first.
  std::vector<NodeId> micro_nodes;
  StageEdges edges;  // of micro_nodes
};

struct StepLayout {
  const Plan* plan = nullptr;
  StepShape shape;
  BatchSplit split;
  std::map<std::string, int> owner;  // of each variable: a place on the pipeline axis
  std::vector<SizedGraph> sizes;     // by index in BatchSplit::sizes

  // The step region, all ids of sizes[0].graph. What the guard depends on comes first, so that no
  // variable changes before it is known.
  std::vector<NodeId> first_sums;  // Accumulate nodes: what the guard needs and forward ones
  std::vector<NodeId> guard_nodes;
  std::vector<NodeId> later_sums;  // in the order in which the backward pass completes them
  std::set<NodeId> report_sums;    // later ones of a training step that no update depends on
  std::vector<NodeId> step_nodes;
  std::vector<ValueId> reports;
  ValueId guard;
  StageEdges begin_edges;
  StageEdges end_edges;
  // What is split over the data axis; nodes are ids of sizes[0].graph.
  DataShardings data;
  std::set<NodeId> scattered_sums;  // of which each replica keeps its rows only

  // This rank has only its rows of the variable.
  bool HasRows(const Variable& variable) const;
  const SizedGraph& step() const { return sizes[0]; }
  // The place on the pipeline axis that runs a stage.
  int PlaceOf(StageId stage) const { return PlaceOfStage(stage.value, plan->mesh.pipeline); }
  // The place that has `value` first; -1 = every one has it (inputs and constants).
  int HomeOf(const SizedGraph& sized, ValueId value) const;
};

// `plan` must outlive the layout.
absl::StatusOr<StepLayout> LayOutStep(const Graph& graph, const Plan& plan, const StepShape& shape,
                                      NodeEvaluator& evaluator);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PIPELINE_STEP_LAYOUT_H_
