// Shape and Size: what an input's shape says, as data. Both are known as soon as shapes are
// concrete, so that Specialize turns them into constants before anything is placed: they need no
// sharding rule.
#include <algorithm>

#include "ops/defs/movement/shape_dims.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

struct AxisRange {
  int begin = 0;
  int end = 0;
};

// Attributes start and end, clamped to [0, rank] after negative ones were counted from the back.
AxisRange ShapeRange(const Attributes& attributes, int rank) {
  const auto clamp = [rank](int64_t axis) {
    if (axis < 0) axis += rank;
    return static_cast<int>(std::clamp<int64_t>(axis, 0, rank));
  };
  const int begin = clamp(attributes.Int("start", 0));
  return {begin, std::max(begin, clamp(attributes.Int("end", rank)))};
}

absl::Status InferShape(InferenceContext& context) {
  const SymbolicShape& input = context.InputShape(0);
  if (!input.has_rank()) {
    context.SetOutput(0, DType::kInt64, SymbolicShape(UnknownDims(1)));
    return absl::OkStatus();
  }
  const AxisRange range = ShapeRange(context.attributes(), input.rank());
  Dims dims(input.dims().begin() + range.begin, input.dims().begin() + range.end);
  context.SetOutput(0, DType::kInt64, SymbolicShape(Shape{range.end - range.begin}));
  context.SetOutputDims(0, std::move(dims));
  return absl::OkStatus();
}

absl::Status InferSize(InferenceContext& context) {
  context.SetOutput(0, DType::kInt64, SymbolicShape(Shape{}));
  const SymbolicShape& input = context.InputShape(0);
  if (!input.has_rank()) return absl::OkStatus();
  context.SetOutputDims(0, {ProductOfDims(input.dims(), 0, input.rank())});
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Shape")
                     .Input("data")
                     .Output("shape")
                     .Attr("start", AttributeType::kInt)
                     .Attr("end", AttributeType::kInt)
                     .Elements(ElementUse::kMoves)
                     .Infer(InferShape)
                     .NoGradient("positions and counts")
                     .CostOf(AliasCost));

WEFT_REGISTER_OP(OpSchema::Onnx("Size")
                     .Input("data")
                     .Output("size")
                     .Elements(ElementUse::kMoves)
                     .Infer(InferSize)
                     .NoGradient("positions and counts")
                     .CostOf(AliasCost));

}  // namespace
}  // namespace weft
