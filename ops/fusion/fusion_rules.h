// What a kind of device fuses. Its kernels say so before main, beside the kernel of Fused.
#ifndef WEFT_OPS_FUSION_FUSION_RULES_H_
#define WEFT_OPS_FUSION_FUSION_RULES_H_

#include <cstdint>

#include "graph/graph.h"
#include "tensor/device.h"

namespace weft {

// What a node can be in a region.
enum class FusedRole : uint8_t {
  kNone,         // nothing
  kElementwise,  // output 0 is computed element by element from operands that broadcast to it
  kReduction,    // input 0 is folded along its last axes, to output 0
};

// `role_of` is asked about nodes whose operands are tensors of known shapes, with elements. It
// looks at types, attributes and constants; whether shapes fit the region is FindRegions' work. The
// other numbers are of one region. Plain values.
struct FusionRules {
  FusedRole (*role_of)(const Graph& graph, const Node& node) = nullptr;
  int max_nodes = 32;
  int max_inputs = 24;
  int max_outputs = 8;
};

// Null where the kind of device fuses nothing. Thread-safe after main has begun.
const FusionRules* FindFusionRules(DeviceKind device);
// Before main; the last rules of a kind count. True, to initialize a static variable with.
bool RegisterFusionRules(DeviceKind device, const FusionRules& rules);

}  // namespace weft

#endif  // WEFT_OPS_FUSION_FUSION_RULES_H_
