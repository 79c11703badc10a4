// Shared by the operators of the domain com.microsoft.
#ifndef WEFT_OPS_DEFS_MICROSOFT_MICROSOFT_RULES_H_
#define WEFT_OPS_DEFS_MICROSOFT_MICROSOFT_RULES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/graph_builder.h"

namespace weft {

inline constexpr char kMicrosoftDomain[] = "com.microsoft";

using Values = std::vector<ValueId>;

// Input `i` of `node`; kNoValue when it has none.
ValueId InputOf(const Node& node, size_t i);

// Whether somebody reads output `i` of `node`.
bool Wants(const Node& node, size_t i);

// Unimplemented, naming the node: `what` of a fused operator is not supported.
absl::Status UnsupportedFusion(const Node& node, const std::string& what);

// Elements [begin, end) of the last axis of `value`.
ValueId LastAxis(GraphBuilder& builder, ValueId value, int64_t begin, int64_t end);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_MICROSOFT_MICROSOFT_RULES_H_
