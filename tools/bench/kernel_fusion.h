// KernelFusion: which nodes of a step a framework with fused kernels would run as one, and what
// memory traffic that saves. Weft's own kernels run node by node; this is for predictions of those
// that do not, for comparing with their measurements.
#ifndef WEFT_TOOLS_BENCH_KERNEL_FUSION_H_
#define WEFT_TOOLS_BENCH_KERNEL_FUSION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "placement/search/node_costs.h"

namespace weft {

// Of one node.
struct FusedNode {
  uint64_t unread = 0;     // operands that its kernel already has, by index
  uint64_t unwritten = 0;  // results that nobody needs in memory
  bool joins = false;      // it runs in the kernel of a node before it
  bool is_free = false;    // it only says where an operand of a product lies
  bool is_once = false;    // it depends on variables alone: once per step, not per micro-batch
  friend bool operator==(const FusedNode&, const FusedNode&) = default;
};

// By NodeId, for a graph with concrete shapes:
// - An elementwise node joins the kernel of another one, of its phase, that makes an operand which
//   no other node of the phase reads. The operand is then not read, and not written unless the
//   other phase reads it (what PyTorch's JIT and XLA do; Megatron-LM's scale, mask and softmax, its
//   bias and GELU, its bias and residual).
// - What only moves elements, for products alone, is free: they read strided operands.
// - Forward nodes that depend on variables alone run once per step (the half-precision copy of a
//   parameter is made after its update).
absl::StatusOr<std::vector<FusedNode>> FuseNodes(const Graph& graph,
                                                 const std::vector<std::vector<Graph::Use>>& uses);

// The costs of such a framework for a search: by the cost model, without what fused nodes neither
// read nor write. Its products add to the sums of gradients where they multiply.
absl::StatusOr<std::unique_ptr<NodeCosts>> MakeFusedNodeCosts(const NodeCostsRequest& request);

}  // namespace weft

#endif  // WEFT_TOOLS_BENCH_KERNEL_FUSION_H_
