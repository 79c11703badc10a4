// PlanEvaluator: what choices would cost, all measured by the same simulator.
#ifndef WEFT_PLACEMENT_SEARCH_PLAN_EVALUATOR_H_
#define WEFT_PLACEMENT_SEARCH_PLAN_EVALUATOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/inference.h"
#include "placement/cost/cost_model.h"
#include "placement/search/plan_choice.h"
#include "placement/search/planning_graph.h"
#include "placement/search/search_options.h"
#include "placement/search/stage_cut.h"
#include "placement/search/stage_traffic.h"
#include "placement/search/unit_layout.h"
#include "placement/sharding/data_sharding.h"

namespace weft {

struct EvaluatedChoice {
  PlanChoice choice;
  std::vector<int> begins;  // the first unit of each stage (StageCut)
  const PlanningGraph* graph = nullptr;
  // Of a step: its time, and the share of the mean rank in it.
  double step_seconds = 0;
  double compute_seconds = 0;
  double communication_seconds = 0;
  double bubble_seconds = 0;
  // Of the rank that is nearest to its limit, with SearchOptions::process_bytes.
  int64_t memory_bytes = 0;
  int64_t memory_limit = 0;  // 0 = none
  bool fits = true;          // into the memory of all ranks
  std::string refusal;       // why it cannot be at all; empty = it can
};

// Makes the planning graphs that choices need and keeps them. Borrows its arguments. Deterministic.
class PlanEvaluator {
 public:
  // InvalidArgument when the graph has no concrete shapes for a number of samples.
  static absl::StatusOr<std::unique_ptr<PlanEvaluator>> Create(const Graph& graph,
                                                               const CostModel& cost,
                                                               const SearchOptions& options,
                                                               NodeEvaluator& evaluator);

  // No plan of this choice takes less, unless smaller micro-batches are faster per sample: all of
  // the work as the whole batch in one piece does it, evenly over the workers, and what a schedule
  // waits at its ends.
  double LowerBound(const PlanChoice& choice) const;
  // The same of the choice's own micro-batches and shards, with the collectives of the tensor axis
  // and what runs again. Nothing is taken for granted. Makes the planning graph.
  absl::StatusOr<double> CloseBound(const PlanChoice& choice);
  // Whether a plan on such a mesh is small enough to be simulated from its own partitions.
  bool IsSimulated(const Mesh& mesh) const {
    return !options_.node_costs && int64_t{graph_.num_nodes()} * mesh.size() <= options_.exact_work;
  }
  // No cut of the stages fits: not even if every unit could be divided at will, and the tensor axis
  // split everything. False where it is not known.
  bool CannotFit(const PlanChoice& choice) const;
  // `exhaustive`: stages are cut in every way instead of by dynamic programming.
  absl::StatusOr<EvaluatedChoice> Evaluate(const PlanChoice& choice, bool exhaustive = false);
  // Its plan, to be completed.
  Plan PlanOf(const EvaluatedChoice& one) const;
  // Seconds of the whole batch on one device of the profile, by device.
  const std::vector<double>& device_seconds() const { return device_seconds_; }
  double WorkerSeconds(int worker) const {
    return device_seconds_[cost_.profile().device_of[worker]];
  }
  const UnitLayout& layout() const { return layout_; }
  // The training graph, its nodes placed in units.
  const Graph& graph() const { return graph_; }
  const CostModel& cost() const { return cost_; }
  const SearchOptions& options() const { return options_; }
  int evaluated() const { return evaluated_; }
  // Of one micro-batch of a choice. Borrowed.
  absl::StatusOr<const PlanningGraph*> GraphOf(const PlanChoice& choice);
  int MeasuredInFlight(const PlanChoice& choice) const;
  // What ZeRO splits of a graph that a choice has (GraphOf). Borrowed.
  const DataSplit& SplitOf(const PlanChoice& choice, const PlanningGraph& graph);

 private:
  PlanEvaluator(const Graph& graph, const CostModel& cost, const SearchOptions& options,
                NodeEvaluator& evaluator)
      : graph_(graph.Clone()),
        cost_(cost),
        options_(options),
        evaluator_(evaluator),
        collectives_(cost) {}
  absl::Status Prepare();
  absl::Status MakeUnits(Graph& sized);
  absl::StatusOr<Graph*> Sized(int64_t samples);
  int64_t SamplesOf(const PlanChoice& choice) const;
  absl::StatusOr<std::map<std::string, AxisSharding>> TensorShardings(
      const Graph& sized, const std::vector<int>& group) const;
  std::vector<StagePlace> Places(const PlanChoice& choice, const StageCosts& stage_costs);
  void SetDataAxis(const PlanChoice& choice, const StageCosts& stage_costs, int place,
                   StagePlace& one);
  int64_t LimitOf(const PlanChoice& choice, int place) const;
  // One micro-batch on one rank that runs all units, on the fastest device.
  struct GraphSeconds {
    double once = 0;
    double forward = 0;       // of these, what recomputation runs again
    double accumulation = 0;  // but for the first micro-batch
  };
  GraphSeconds SecondsOf(const PlanningGraph& graph, const PlanChoice& choice);
  void SumMemory(const StageCosts& stage_costs, EvaluatedChoice& result) const;
  absl::Status Simulate(const StageCosts& stage_costs, EvaluatedChoice& result);

  Graph graph_;
  const CostModel& cost_;
  const SearchOptions& options_;
  NodeEvaluator& evaluator_;
  CollectiveCosts collectives_;
  UnitLayout layout_;
  std::vector<int> threads_;  // by worker
  std::vector<double> device_seconds_;
  // Of the whole batch on one rank.
  struct WholeBytes {
    int64_t variables = 0;  // but the optimizer's state
    int64_t gradients = 0;
    int64_t state = 0;
    int64_t kept = 0;  // for the backward pass
  };
  WholeBytes whole_;
  std::map<std::pair<const PlanningGraph*, std::vector<int>>, GraphSeconds> graph_seconds_;
  std::map<int64_t, std::unique_ptr<Graph>> sized_;
  std::optional<RowUpdates> row_updates_;  // once something is split
  std::map<std::tuple<const PlanningGraph*, int, int>, DataSplit> splits_;  // replicas, zero (1, 2)
  // By samples, shards, micro-batches in flight, devices of the shards.
  std::map<std::tuple<int64_t, int, int, std::vector<int>>, std::unique_ptr<PlanningGraph>> graphs_;
  int evaluated_ = 0;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_PLAN_EVALUATOR_H_
