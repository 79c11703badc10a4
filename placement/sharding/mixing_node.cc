#include "placement/sharding/mixing_node.h"

#include "absl/strings/str_cat.h"

namespace weft {

std::string MixingNode::ToString() const {
  return absl::StrCat("node '", node, "' (", op, ") ", reason);
}

}  // namespace weft
