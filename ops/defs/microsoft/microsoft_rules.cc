#include "ops/defs/microsoft/microsoft_rules.h"

#include "absl/strings/str_cat.h"

namespace weft {

ValueId InputOf(const Node& node, size_t i) {
  return i < node.inputs.size() ? node.inputs[i] : kNoValue;
}

bool Wants(const Node& node, size_t i) {
  return i < node.outputs.size() && node.outputs[i].valid();
}

absl::Status UnsupportedFusion(const Node& node, const std::string& what) {
  return absl::UnimplementedError(absl::StrCat("node '", node.name, "' (", node.op, "): ", what,
                                               " is not supported; export the model without this "
                                               "fusion"));
}

ValueId LastAxis(GraphBuilder& builder, ValueId value, int64_t begin, int64_t end) {
  return builder.Op("Slice",
                    {value, builder.Ints({begin}), builder.Ints({end}), builder.Ints({-1})});
}

}  // namespace weft
