// TensorCosts: what it takes to run the forward nodes of a training graph split along the tensor
// axis. Every way to look for a split compares by these costs. Internal to placement/search/.
#ifndef WEFT_PLACEMENT_SEARCH_TENSOR_COSTS_H_
#define WEFT_PLACEMENT_SEARCH_TENSOR_COSTS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/sharding.h"
#include "placement/cost/cost_model.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/search/collective_costs.h"
#include "placement/sharding/sharding_choice.h"
#include "placement/sharding/sharding_propagation.h"

namespace weft {

struct TensorSplitOptions {
  std::vector<int> workers;  // of one tensor-parallel group
  int threads = 1;
  // How parameters (by name or pattern) and other values (by name) lie that are given.
  std::map<std::string, AxisSharding> given;
  // The graph before its samples were counted; null: not known. A value that nodes make is not
  // hinted to be split along an axis that has no number there: a last, shorter batch could not be.
  const Graph* uncounted = nullptr;
  // States that dynamic programming keeps from node to node.
  int beam = 64;
  // What a byte of a parameter costs that a rank holds for ever, in seconds of a micro-batch; more
  // than 0 asks for a plan that fits.
  double seconds_per_byte = 0;
  // For ChooseTensorShardings: a rank shall keep little of the parameters, also where that is not
  // fastest.
  bool saves_memory = false;
};

// A choice of hints (Plan::tensor_shardings) for the variables that forward nodes of a graph read
// and for what these make.
struct TensorSplit {
  std::map<std::string, AxisSharding> shardings;  // of variables those that are split
  // Of a micro-batch on one rank: compute, and collectives forward and backward.
  double seconds = 0;
  // No choice that was there to make takes less; 0 = not known.
  double min_seconds = 0;
};

// Borrows its arguments; the graph is a training graph with concrete shapes. Not thread-safe: it
// remembers. What a node costs: its shard's compute, conversions of its inputs, and the backward
// pass as index notation gives it: the gradient of an operand that is read whole by a split node is
// a sum over the ranks, and what a conversion moved moves back.
class TensorCosts {
 public:
  // Errors are those of the ops' rules, here and below.
  static absl::StatusOr<std::unique_ptr<TensorCosts>> Create(const Graph& graph,
                                                             const CostModel& cost,
                                                             const TensorSplitOptions& options);

  const Graph& graph() const { return graph_; }
  const TensorSplitOptions& options() const { return options_; }
  int shards() const { return shards_; }
  // Forward nodes in topological order, those made of parameters alone right before a reader.
  const std::vector<NodeId>& forward() const { return forward_; }
  // The first and the last position in forward() at which a value is read; -1: nowhere.
  int FirstUse(ValueId value) const { return first_use_[value.value]; }
  int LastUse(ValueId value) const { return last_use_[value.value]; }
  int ForwardReaders(ValueId value) const { return forward_readers_[value.value]; }
  bool IsReadBackward(ValueId value) const;
  bool IsVariable(ValueId value) const {
    return value.valid() && graph_.value(value).source == ValueSource::kVariable;
  }
  // Blocks of a dimension that a parameter may be split in: those that some rule speaks of (the
  // three parts of a fused projection), and 1.
  const std::set<int64_t>& blocks() const { return blocks_; }
  // Nodes of equal text can be split in the same ways at the same cost where inputs lie alike.
  std::string ClassOf(const Node& node) const;
  const AxisSharding* GivenFor(ValueId variable) const;
  // Whether a value may be hinted to lie so: each rank has a row.
  bool CanHold(ValueId value, const AxisSharding& sharding) const;

  // What PropagateShardings does with a node whose inputs lie as `current`, of its candidates.
  // `hints`, by output: what it is hinted to be; empty = nothing is.
  const NodeSharding& Decide(const Node& node, const std::vector<NodeSharding>& candidates,
                             const std::vector<AxisSharding>& current,
                             const std::vector<std::optional<AxisSharding>>& hints = {}) const;
  // Of one node whose inputs lie as `current`.
  double NodeSeconds(const GraphNodeView& view, const NodeSharding& sharding,
                     const std::vector<AxisSharding>& current);
  // Of making a value whole that is a sum over the ranks.
  double SumSeconds(ValueId value);
  // Of a value that is made as `from` and hinted to be `to`.
  double HintSeconds(ValueId value, const AxisSharding& from, const AxisSharding& to);
  // Of a parameter: its update, and what its bytes cost by the options.
  double KeepingSeconds(ValueId variable, const AxisSharding& sharding) const;
  // All of that for the forward nodes as PropagateShardings splits them by these hints.
  absl::StatusOr<double> SecondsOf(const std::map<std::string, AxisSharding>& hints);

 private:
  TensorCosts(const Graph& graph, const CostModel& cost, const TensorSplitOptions& options);
  absl::Status Prepare();
  absl::Status FindBlocks();
  double ConversionSeconds(ValueId value, const AxisSharding& from, const AxisSharding& to);
  double BackwardSeconds(ValueId value, const AxisSharding& from, const AxisSharding& to,
                         bool node_is_split);
  // Those that the walk comes to: each bears its part of what they share.
  double Readers(ValueId value) const { return std::max(1, forward_readers_[value.value]); }

  const Graph& graph_;
  const CostModel& cost_;
  const TensorSplitOptions& options_;
  const int shards_;
  const ShardingScorer scorer_;
  const std::vector<int> classes_;
  CollectiveCosts collectives_;
  std::vector<NodeId> forward_;
  std::vector<int> first_use_;        // by ValueId: position in forward_; -1: not read
  std::vector<int> last_use_;         // the same
  std::vector<int> forward_readers_;  // by ValueId
  std::vector<bool> has_gradient_;    // by ValueId
  std::set<int64_t> blocks_ = {1};
};

// Adds a text that tells it from others.
void AppendSharding(const AxisSharding& sharding, std::string& key);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_TENSOR_COSTS_H_
