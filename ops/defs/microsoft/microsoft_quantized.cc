// com.microsoft::MatMulNBits: a product with a weight whose blocks of a few bits have scales and
// zero points; and ai.weft::DequantizeBlocks, which makes the weight.
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

struct Blocks {
  int64_t rows, columns, bits, size;
  int64_t per_row() const { return (columns + size - 1) / size; }
};

// Of rows, columns and blocks: so that no product of them overflows.
constexpr int64_t kMaxElements = int64_t{1} << 28;

absl::StatusOr<Blocks> ReadBlocks(const InferenceContext& context) {
  const Attributes& attributes = context.attributes();
  const Blocks blocks = {attributes.Int("N", 0), attributes.Int("K", 0), attributes.Int("bits", 4),
                         attributes.Int("block_size", 32)};
  const bool bits = blocks.bits == 2 || blocks.bits == 4 || blocks.bits == 8;
  const bool sizes = blocks.rows >= 1 && blocks.rows <= kMaxElements && blocks.columns >= 1 &&
                     blocks.columns <= kMaxElements && blocks.size >= 8 &&
                     blocks.size <= kMaxElements && blocks.size % 8 == 0;
  if (bits && sizes) return blocks;
  return context.Error(
      absl::StrCat("attributes N ", blocks.rows, ", K ", blocks.columns, ", bits ", blocks.bits,
                   " and block_size ", blocks.size,
                   ", expected positive sizes, 2, 4 or 8 bits, and blocks of a multiple of 8"));
}

absl::Status CheckCount(const InferenceContext& context, int input, int64_t wanted) {
  const std::optional<Shape> shape = context.InputShape(input).ToConcrete();
  if (!shape.has_value() || shape->num_elements() == wanted) return absl::OkStatus();
  return context.Error(
      absl::StrCat("input ", input, " is ", shape->ToString(), ", expected ", wanted, " elements"));
}

// (B, scales, zero_points, g_idx) -> [N, K] of the scales' type. g_idx says for each of the K
// columns whose scale and zero point it has (columns that were sorted before they were quantized).
absl::Status InferDequantizeBlocks(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const Blocks blocks, ReadBlocks(context));
  const int64_t count = blocks.rows * blocks.per_row();
  WEFT_RETURN_IF_ERROR(CheckCount(context, 0, count * blocks.size * blocks.bits / 8));
  WEFT_RETURN_IF_ERROR(CheckCount(context, 1, count));
  if (context.HasInput(2)) {
    const bool packed = context.InputType(2).dtype == DType::kUint8;
    const int64_t row_bytes = (blocks.per_row() * blocks.bits + 7) / 8;
    WEFT_RETURN_IF_ERROR(CheckCount(context, 2, packed ? blocks.rows * row_bytes : count));
  }
  if (context.HasInput(3)) {
    const std::optional<Shape> groups = context.InputShape(3).ToConcrete();
    const int64_t padded = blocks.per_row() * blocks.size;
    if (!groups.has_value() || groups->num_elements() != padded) {
      WEFT_RETURN_IF_ERROR(CheckCount(context, 3, blocks.columns));
    }
  }
  return SetCheckedOutput(context, context.InputType(1).dtype,
                          {Dim(blocks.rows), Dim(blocks.columns)});
}

OpSchema WithBlocks(OpSchema schema) {
  return schema.Attr("K", AttributeType::kInt, /*required=*/true)
      .Attr("N", AttributeType::kInt, /*required=*/true)
      .Attr("bits", AttributeType::kInt)
      .Attr("block_size", AttributeType::kInt, /*required=*/true);
}

WEFT_REGISTER_OP(WithBlocks(OpSchema::Weft("DequantizeBlocks")
                                .Input("B", {DType::kUint8})
                                .Input("scales", kFloatTypes)
                                .OptionalInput("zero_points")
                                .OptionalInput("g_idx", {DType::kInt32})
                                .Output("weight")
                                .Infer(InferDequantizeBlocks)
                                .NoGradient("whole numbers")));

absl::Status InferMatMulNBits(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const Blocks blocks, ReadBlocks(context));
  const ValueType& a = context.InputType(0);
  if (!a.shape.has_rank()) {
    context.SetOutput(0, a.dtype, SymbolicShape());
    return absl::OkStatus();
  }
  Dims dims = a.shape.dims();
  if (dims.empty() || !MergeDims(dims.back(), Dim(blocks.columns)).has_value()) {
    return context.Error(absl::StrCat("A is ", a.shape.ToString(), ", expected [...,",
                                      blocks.columns, "] (attribute K)"));
  }
  dims.back() = Dim(blocks.rows);
  return SetCheckedOutput(context, a.dtype, std::move(dims));
}

absl::StatusOr<std::vector<ValueId>> ExpandMatMulNBits(ExpandContext& context) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  const auto input = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNoValue; };
  std::vector<ValueId> parts = {node.inputs[1], node.inputs[2], input(3), input(4)};
  while (!parts.back().valid()) parts.pop_back();
  Attributes attributes;
  for (const char* name : {"K", "N", "bits", "block_size"}) {
    if (node.attributes.Has(name)) attributes.Set(name, node.attributes.Int(name, 0));
  }
  const ValueId weight = b.WeftOp("DequantizeBlocks", std::move(parts), attributes);
  const ValueId columns = b.Op("Transpose", {weight}, {{"perm", std::vector<int64_t>{1, 0}}});
  ValueId y = b.Op("MatMul", {node.inputs[0], columns});
  if (input(5).valid()) y = b.Op("Add", {y, input(5)});
  WEFT_RETURN_IF_ERROR(b.status());
  return std::vector<ValueId>{y};
}

WEFT_REGISTER_OP(WithBlocks(OpSchema("com.microsoft", "MatMulNBits")
                                .Input("A", kFloatTypes)
                                .Input("B", {DType::kUint8})
                                .Input("scales", kFloatTypes)
                                .NeverLearnable()
                                .OptionalInput("zero_points")
                                .OptionalInput("g_idx", {DType::kInt32})
                                .OptionalInput("bias", kFloatTypes)
                                .Output("Y")
                                .Attr("accuracy_level", AttributeType::kInt)
                                .Infer(InferMatMulNBits)
                                .Expand(ExpandMatMulNBits)));

}  // namespace
}  // namespace weft
