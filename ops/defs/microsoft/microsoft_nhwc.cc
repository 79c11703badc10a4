// com.microsoft::NhwcConv: a convolution of images with channels last, X [N, axes..., C] and
// W [M, axes..., C / group], taken apart into Conv between transpositions.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The order of axes that moves the last behind the first, and its inverse.
std::vector<int64_t> ChannelsFirst(int64_t rank) {
  std::vector<int64_t> order = {0, rank - 1};
  for (int64_t axis = 1; axis < rank - 1; ++axis) order.push_back(axis);
  return order;
}
std::vector<int64_t> ChannelsLast(int64_t rank) {
  std::vector<int64_t> order = {0};
  for (int64_t axis = 2; axis < rank; ++axis) order.push_back(axis);
  order.push_back(1);
  return order;
}

ValueType Ordered(ValueType type, std::vector<int64_t> (*order_of)(int64_t)) {
  if (!type.shape.has_rank() || type.shape.rank() < 3) return type;
  Dims dims;
  for (const int64_t axis : order_of(type.shape.rank())) {
    dims.push_back(type.shape.dim(static_cast<int>(axis)));
  }
  type.shape = SymbolicShape(std::move(dims));
  return type;
}

// The node as Conv's shape function would see it with channels first.
class ChannelsFirstContext final : public InferenceContext {
 public:
  explicit ChannelsFirstContext(InferenceContext& context) : context_(context) {
    for (int i = 0; i < context.num_inputs(); ++i) {
      types_.push_back(context.HasInput(i) ? context.InputType(i) : ValueType());
      if (i < 2) types_.back() = Ordered(types_.back(), ChannelsFirst);
    }
  }
  const Node& node() const override { return context_.node(); }
  const ValueType& InputType(int i) const override { return types_[static_cast<size_t>(i)]; }
  const Tensor* InputValue(int) const override { return nullptr; }
  std::optional<std::vector<Dim>> InputDims(int) const override { return std::nullopt; }
  void SetOutput(int i, ValueType type) override {
    context_.SetOutput(i, Ordered(std::move(type), ChannelsLast));
  }
  void SetOutputDims(int, std::vector<Dim>) override {}
  absl::Status Error(const std::string& message) const override {
    return context_.Error(absl::StrCat("with channels first: ", message));
  }

 private:
  InferenceContext& context_;
  std::vector<ValueType> types_;
};

absl::Status InferNhwcConv(InferenceContext& context) {
  const OpSchema* const conv = OpRegistry::Global().Find("", "Conv");
  if (conv == nullptr) return context.Error("the op Conv is not known");
  ChannelsFirstContext channels_first(context);
  return conv->infer()(channels_first);
}

absl::StatusOr<std::vector<ValueId>> ExpandNhwcConv(ExpandContext& context) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  std::vector<ValueId> operands;
  int64_t rank = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    operands.push_back(node.inputs[i]);
    if (i >= 2) continue;
    const SymbolicShape shape = b.type(node.inputs[i]).shape;
    if (!shape.has_rank() || shape.rank() < 3) {
      return absl::UnimplementedError(absl::StrCat("node '", node.name, "' (NhwcConv): input ", i,
                                                   " is ", shape.ToString(),
                                                   ", expected a known rank of 3 or more"));
    }
    rank = shape.rank();
    operands[i] = b.Op("Transpose", {operands[i]}, {{"perm", ChannelsFirst(rank)}});
  }
  const ValueId y = b.Op("Conv", std::move(operands), node.attributes);
  const ValueId last = b.Op("Transpose", {y}, {{"perm", ChannelsLast(rank)}});
  WEFT_RETURN_IF_ERROR(b.status());
  return std::vector<ValueId>{last};
}

WEFT_REGISTER_OP(OpSchema("com.microsoft", "NhwcConv")
                     .Input("X", kFloatTypes)
                     .Input("W", kFloatTypes)
                     .Learnable()
                     .OptionalInput("B", kFloatTypes)
                     .Learnable()
                     .Output("Y")
                     .Attr("auto_pad", AttributeType::kString)
                     .Attr("dilations", AttributeType::kInts)
                     .Attr("group", AttributeType::kInt)
                     .Attr("kernel_shape", AttributeType::kInts)
                     .Attr("pads", AttributeType::kInts)
                     .Attr("strides", AttributeType::kInts)
                     .Infer(InferNhwcConv)
                     .Expand(ExpandNhwcConv));

}  // namespace
}  // namespace weft
