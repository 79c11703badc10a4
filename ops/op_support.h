// What this build can do with an op.
#ifndef WEFT_OPS_OP_SUPPORT_H_
#define WEFT_OPS_OP_SUPPORT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/op_schema.h"
#include "tensor/device.h"

namespace weft {

// How it runs on a device.
enum class RunSupport : uint8_t {
  kNo,
  kKernel,    // a kernel of its own
  kAlias,     // nothing to compute: its output is its input under another shape
  kValues,    // a value kernel: on the host, with outputs made at run time
  kExpanded,  // as the simpler nodes that its declaration expands to
};
std::string_view RunSupportName(RunSupport support);  // "no", "kernel", "alias", ...

// How gradients pass through it.
enum class TrainSupport : uint8_t {
  kNo,        // differentiable in principle, but there is no rule
  kNone,      // none flows, by its nature
  kRule,      // a rule of its own
  kExpanded,  // through the nodes that it expands to
};
std::string_view TrainSupportName(TrainSupport support);  // "no", "-", "rule", "expanded"

RunSupport RunSupportOf(const OpSchema& schema, DeviceKind device);
TrainSupport TrainSupportOf(const OpSchema& schema);
// With the reason that the schema states: "rule", "expanded", "none: random", "missing: ...".
std::string TrainSupportText(const OpSchema& schema);
// Whether it has a sharding rule; without one it runs whole on every device.
bool Shards(const OpSchema& schema);

}  // namespace weft

#endif  // WEFT_OPS_OP_SUPPORT_H_
