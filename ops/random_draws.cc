#include "ops/random_draws.h"

#include <cstring>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"

namespace weft {

RandomKey KeyOfNode(const PrepareContext& context) {
  const Node& node = context.node();
  const std::string& name = node.origin.forward_node.empty() ? node.name : node.origin.forward_node;
  // Seeds of random numbers are floats in ONNX, that of Dropout is an integer.
  const Attribute* seed = context.attributes().Find("seed");
  uint64_t number = 0;
  if (seed != nullptr && std::holds_alternative<int64_t>(*seed)) {
    number = static_cast<uint64_t>(std::get<int64_t>(*seed));
  } else if (seed != nullptr && std::holds_alternative<float>(*seed)) {
    uint32_t bits;
    const float value = std::get<float>(*seed);
    std::memcpy(&bits, &value, sizeof(bits));
    number = bits;
  }
  return RandomKey(number, absl::StrCat(node.op, " ", name));
}

}  // namespace weft
