#include "placement/sharding/sharding_candidates.h"

#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "graph/node_description.h"
#include "placement/graph_views/control_flow_bodies.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class CandidateLister {
 public:
  CandidateLister(const NodeView& node, const FactorRule& rule,
                  const std::vector<AxisSharding>& current, int shards)
      : node_(node), rule_(rule), current_(current), shards_(shards) {}

  void AddFactors(std::vector<NodeSharding>& candidates) const {
    for (int factor = 0; factor < static_cast<int>(rule_.factors.size()); ++factor) {
      const FactorKind kind = rule_.factors[factor].kind;
      if (kind != FactorKind::kParallel && kind != FactorKind::kSum) continue;
      for (const int64_t blocks : BlocksOf(factor)) {
        if (rule_.factors[factor].size / blocks < shards_) continue;
        if (auto candidate = SplitAll(factor, blocks)) candidates.push_back(*std::move(candidate));
      }
    }
  }

  void AddLinear(std::vector<NodeSharding>& candidates) const {
    for (const std::vector<int>& set : rule_.linear) {
      NodeSharding candidate;
      candidate.inputs.resize(node_.num_inputs());
      candidate.outputs.assign(node_.num_outputs(), AxisSharding::Partial());
      bool any = false;
      bool fits = true;
      for (const int input : set) {
        if (!node_.HasInput(input)) continue;
        // Each rank has the whole of a constant: no conversion makes a part of a sum of it.
        fits &= node_.InputValue(input) == nullptr;
        candidate.inputs[input] = AxisSharding::Partial();
        any |= current_[input].is_partial();
      }
      if (any && fits) candidates.push_back(std::move(candidate));
    }
  }

 private:
  // 1, and into how many blocks the factor falls where an input that has it is split now.
  std::set<int64_t> BlocksOf(int factor) const {
    std::set<int64_t> blocks = {1};
    for (int i = 0; i < node_.num_inputs(); ++i) {
      if (!current_[i].is_split()) continue;
      const std::optional<AxisSharding> one =
          ShardingOfFactor(rule_, rule_.inputs[i], factor, shards_);
      if (!one.has_value() || !one->is_split() || one->axis != current_[i].axis) continue;
      const int64_t of_factor = current_[i].blocks / one->blocks;
      const bool divides = of_factor > 0 && current_[i].blocks % one->blocks == 0 &&
                           rule_.factors[factor].size % of_factor == 0;
      if (divides) blocks.insert(of_factor);
    }
    return blocks;
  }

  // How the operand lies when the factor, seen as blocks x rest, is split along rest.
  std::optional<AxisSharding> Split(const OperandFactors& operand, int factor,
                                    int64_t blocks) const {
    std::optional<AxisSharding> split = ShardingOfFactor(rule_, operand, factor, shards_);
    if (!split.has_value() || !split->is_split() || blocks == 1) return split;
    const int64_t size = rule_.factors[factor].size;
    int64_t dimension = 1;
    for (const int other : operand.dims[split->axis]) dimension *= rule_.factors[other].size;
    const int64_t minor = dimension / (split->blocks * size);
    if (minor != 1 && (size / blocks) % shards_ != 0) return std::nullopt;
    split->blocks *= blocks;
    return split;
  }

  std::optional<NodeSharding> SplitAll(int factor, int64_t blocks) const {
    NodeSharding candidate;
    for (int i = 0; i < node_.num_inputs(); ++i) {
      const auto split =
          node_.HasInput(i) ? Split(rule_.inputs[i], factor, blocks) : AxisSharding::Replicated();
      if (!split.has_value()) return std::nullopt;
      candidate.inputs.push_back(*split);
    }
    for (int i = 0; i < node_.num_outputs(); ++i) {
      auto split =
          node_.HasOutput(i) ? Split(rule_.outputs[i], factor, blocks) : AxisSharding::Replicated();
      if (!split.has_value()) return std::nullopt;
      if (node_.HasOutput(i) && split->is_replicated()) {
        // Summed over: each rank has a part of the sum. A parallel factor that an output lacks
        // would be lost there.
        if (rule_.factors[factor].kind != FactorKind::kSum) return std::nullopt;
        split = AxisSharding::Partial();
      }
      candidate.outputs.push_back(*split);
    }
    return candidate;
  }

  const NodeView& node_;
  const FactorRule& rule_;
  const std::vector<AxisSharding>& current_;
  const int shards_;
};

}  // namespace

absl::StatusOr<std::vector<NodeSharding>> ShardingCandidates(
    const NodeView& node, const std::vector<AxisSharding>& current, int shards) {
  NodeSharding replicated;
  replicated.inputs.resize(node.num_inputs());
  replicated.outputs.resize(node.num_outputs());
  std::vector<NodeSharding> candidates = {std::move(replicated)};
  const OpSchema* schema = node.node().schema;
  if (schema == nullptr || !schema->sharding() || HasBody(node.node())) return candidates;
  WEFT_ASSIGN_OR_RETURN(const FactorRule rule, schema->sharding()(node));
  if (static_cast<int>(rule.inputs.size()) != node.num_inputs() ||
      static_cast<int>(rule.outputs.size()) != node.num_outputs()) {
    return absl::InternalError(absl::StrCat(DescribeNode(node.node()), ": its sharding rule has ",
                                            rule.inputs.size(), " inputs and ", rule.outputs.size(),
                                            " outputs, the node ", node.num_inputs(), " and ",
                                            node.num_outputs()));
  }
  const CandidateLister lister(node, rule, current, shards);
  lister.AddFactors(candidates);
  lister.AddLinear(candidates);
  return candidates;
}

}  // namespace weft
