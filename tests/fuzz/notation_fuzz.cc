// Arbitrary text as what the header of a library of custom ops says of an op's sharding, bound to
// shapes of a node. The first byte says how many inputs the node has, and their sizes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/op_schema.h"
#include "ops/custom/sharding_notation.h"

namespace weft {
namespace {

// A node whose inputs and output have these shapes.
class ShapedNode final : public NodeView {
 public:
  ShapedNode(std::vector<Shape> inputs, Shape output)
      : inputs_(std::move(inputs)), output_(std::move(output)) {
    node_.name = "n";
    node_.op = "Op";
    node_.inputs.assign(inputs_.size(), ValueId(0));
    node_.outputs.assign(1, ValueId(0));
  }
  const Node& node() const override { return node_; }
  const Shape& InputShape(int i) const override { return inputs_[static_cast<size_t>(i)]; }
  const Shape& OutputShape(int) const override { return output_; }
  DType InputDType(int) const override { return DType::kFloat32; }
  DType OutputDType(int) const override { return DType::kFloat32; }
  const Tensor* InputValue(int) const override { return nullptr; }

 private:
  Node node_;
  std::vector<Shape> inputs_;
  Shape output_;
};

void TakeNotation(uint8_t first, const std::string& text) {
  const auto notation = ShardingNotation::Parse(text);
  if (!notation.ok()) return;
  const int inputs = 1 + first % 4;
  const int64_t size = first / 4 % 8;
  const std::vector<Shape> shapes =
      notation->InputShapes(inputs, first / 32 % 4, [size](const std::string&) { return size; });
  if (static_cast<int>(shapes.size()) != inputs) return;
  (void)notation->Bind(ShapedNode(shapes, shapes.front()));
  (void)notation->Bind(ShapedNode(shapes, Shape()));
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  weft::TakeNotation(data[0], std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
