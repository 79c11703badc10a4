#include "placement/sharding/sharding_choice.h"

#include <algorithm>

#include "placement/conversions/conversion.h"
#include "placement/graph_views/graph_node_view.h"

namespace weft {

ShardingScore ShardingScorer::Score(const Node& node, const NodeSharding& candidate,
                                    const std::vector<AxisSharding>& current,
                                    const std::vector<AxisSharding>& hints) const {
  ShardingScore score;
  bool passes_partial = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i].valid()) continue;
    passes_partial |= candidate.inputs[i].is_partial();
    if (current[i] == candidate.inputs[i]) continue;
    if (graph_.value(node.inputs[i]).source == ValueSource::kConstant) continue;  // sliced ahead
    score.bytes += InputCost(node.inputs[i], current[i], candidate.inputs[i]);
    ++score.conversions;
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    // What stays a sum of parts is summed later: count that as if it were done here.
    const bool is_later = passes_partial && hints[i].is_partial();
    const AxisSharding to = is_later ? AxisSharding::Replicated() : hints[i];
    score.bytes += ConversionBytes(static_cast<double>(BytesOf(graph_, node.outputs[i])), shards_,
                                   candidate.outputs[i], to);
    if (hints[i] == candidate.outputs[i]) continue;
    ++score.unhinted;
    ++score.conversions;
  }
  return score;
}

double ShardingScorer::InputCost(ValueId value, const AxisSharding& from,
                                 const AxisSharding& to) const {
  const double size = static_cast<double>(BytesOf(graph_, value));
  if (!from.is_partial()) return ConversionBytes(size, shards_, from, to);
  // Its readers share one sum; and a sum that is scattered is gathered later: count it as if it
  // were made whole.
  const AxisSharding whole = AxisSharding::Replicated();
  const double readers = static_cast<double>(std::max<size_t>(1, uses_[value.value].size()));
  return ConversionBytes(size, shards_, from, to.is_split() ? whole : to) / readers;
}

}  // namespace weft
