// Replaces regions of a graph by nodes that hold their parts as a body.
#ifndef WEFT_OPS_FUSION_REGION_REPLACER_H_
#define WEFT_OPS_FUSION_REGION_REPLACER_H_

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "graph/graph.h"
#include "ops/fusion/region_finder.h"

namespace weft {

// For regions that have no node in common, found in `graph`, which is borrowed and has not changed
// since but through this object. Used by one thread.
class RegionReplacer {
 public:
  explicit RegionReplacer(Graph& graph);

  // The nodes of a region as a graph of their own, with the names and types that they have. Its
  // inputs are the values that `region` reads, in order of ids, but for numbers and for axes of its
  // reduction, which are constants in it.
  std::shared_ptr<Graph> BodyOf(const Region& region) const;

  // A node of Fused (fused_node.h) in the place of the region.
  void Fuse(const Region& region);
  // A node of JoinedProduct, whose outputs are written over nothing. `body` is BodyOf(region).
  void JoinProduct(const Region& region, std::shared_ptr<Graph> body);

 private:
  std::vector<ValueId> InOrder(const Region& region, std::vector<ValueId> operands) const;
  bool MayWriteOver(ValueId operand, ValueId output, const std::set<NodeId>& nodes) const;
  // The parts go, and the seat becomes a node with the region's outputs, and nothing else yet.
  Node& ReplaceParts(const Region& region);

  Graph& graph_;
  // As before; the uses by nodes of a region stay those of its parts.
  const std::vector<std::vector<Graph::Use>> uses_;
  std::set<ValueId> kept_;
  std::map<ValueId, ValueId> updated_;  // variables by what they become
};

}  // namespace weft

#endif  // WEFT_OPS_FUSION_REGION_REPLACER_H_
