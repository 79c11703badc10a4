// BatchFollower: walks over a graph of concrete shapes, keeps for each value where the samples of
// the batch are in it, and collects the nodes that mix them. Internal to placement/sharding.
#ifndef WEFT_PLACEMENT_SHARDING_BATCH_FOLLOWER_H_
#define WEFT_PLACEMENT_SHARDING_BATCH_FOLLOWER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/inference.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/sharding/batch_place.h"
#include "placement/sharding/mixing_node.h"

namespace weft {

// Borrows all that it is made of. One walk.
class BatchFollower {
 public:
  // `found` gets the nodes that mix samples. REQUIRES: samples >= 2.
  BatchFollower(const Graph& graph, int64_t samples, NodeEvaluator& evaluator,
                std::vector<MixingNode>& found);

  // The same graph for another number of samples: it shows what depends on that.
  void CompareWith(const Graph& other, int64_t samples);
  // Before the walk: of an input.
  void SetPlace(ValueId value, BatchPlace place) { places_[value.value] = std::move(place); }
  const BatchPlace& PlaceOf(ValueId value) const { return places_[value.value]; }
  // Internal where the graph has a cycle.
  absl::Status Run();

 private:
  using Kind = BatchPlace::Kind;
  // A node with its rule and the places of its inputs.
  struct Visit {
    const Node* node = nullptr;
    std::optional<FactorRule> rule;
    std::vector<BatchPlace> inputs;  // kNone for those that only say shapes
    bool Has(Kind kind) const;
  };

  void PlaceConstants();
  std::optional<FactorRule> RuleOf(const Node& node) const;
  Visit VisitOf(const Node& node) const;
  absl::Status VisitNode(const Node& node);
  void VisitBoundary(const Node& node);
  void VisitIndependent(const Visit& visit);
  void VisitSplit(const Visit& visit);
  void VisitAlias(const Visit& visit);
  std::optional<BatchFactor> FindFactor(const Visit& visit, int& first);
  void VisitWithoutRule(const Visit& visit);
  void FollowFactor(const Visit& visit, const BatchFactor& batch);
  void CarryNumbers(const Visit& visit);
  int64_t StrideAfter(const Visit& visit, int input) const;
  std::vector<BatchPlace> GrownAxes(const Node& node) const;
  bool TakesOwnRows(const Visit& visit);
  void VisitReduced(const Visit& visit);
  std::optional<Kind> KindOfReduced(const Visit& visit) const;
  bool IsMeanTimesSamples(const Visit& visit) const;
  absl::Status VisitBodies(const Visit& visit);
  absl::Status VisitIf(const Visit& visit);
  absl::Status VisitLoop(const Visit& visit);
  absl::Status VisitScan(const Visit& visit);
  // A value that goes into a body.
  struct BodyInput {
    ValueType type;
    BatchPlace place;
  };
  // The places of a body's outputs, from its own inputs (not its captures).
  absl::StatusOr<std::vector<BatchPlace>> FollowBody(const Visit& visit, const std::string& name,
                                                     const std::vector<BodyInput>& inputs,
                                                     std::vector<MixingNode>& found);
  struct SettledBody {
    std::vector<BatchPlace> outputs;
    // A state in which the samples change their place from round to round.
    std::optional<int> moving_state;
  };
  // The same where outputs from `first_output` on become the inputs from `first_state` on in the
  // next round, until their places stay.
  absl::StatusOr<SettledBody> SettleBody(const Visit& visit, std::vector<BodyInput> inputs,
                                         size_t first_state, size_t states, size_t first_output);
  void ReportMovingState(const Visit& visit, int state);
  void VisitByShape(const Visit& visit);

  std::string NameOf(ValueId value) const;
  // Of an output that keeps the samples, from its shapes alone.
  BatchPlace GuessPlace(ValueId output, const Visit& visit) const;
  // The node mixes samples; its outputs are followed on as far as their shapes say.
  void Report(const Visit& visit, std::string reason);
  void ReportPairs(const Visit& visit, int a, int b);
  void ReportSum(const Visit& visit);
  void ReportWhole(const Visit& visit, int input);
  void SetOutputs(const Node& node, const BatchPlace& place);

  const Graph& graph_;
  const Graph* other_ = nullptr;
  const int64_t samples_;
  int64_t other_samples_ = 0;
  NodeEvaluator& evaluator_;
  std::vector<MixingNode>& found_;
  std::vector<BatchPlace> places_;  // by ValueId
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SHARDING_BATCH_FOLLOWER_H_
