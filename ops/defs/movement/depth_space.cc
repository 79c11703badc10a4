// DepthToSpace and SpaceToDepth: blocks of pixels to channels and back, each the other's inverse.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::StatusOr<int64_t> BlockSize(const InferenceContext& context) {
  const int64_t block = context.attributes().Int("blocksize", 0);
  if (block < 1 || block > (int64_t{1} << 16)) {
    return context.Error(absl::StrCat("attribute 'blocksize' is ", block));
  }
  const std::string mode = context.attributes().String("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") {
    return context.Error(absl::StrCat("attribute 'mode' is '", mode, "', expected DCR or CRD"));
  }
  return block;
}

// A dimension divided by `by`; unknown when it is.
absl::StatusOr<Dim> Divided(const InferenceContext& context, const Dim& dim, int64_t by) {
  if (by == 1) return dim;
  if (!dim.is_known()) return Dim();
  if (dim.size() % by == 0) return Dim(dim.size() / by);
  return context.Error(absl::StrCat("input of shape ", context.InputShape(0).ToString(), ": ",
                                    dim.size(), " cannot be divided by ", by));
}

Dim Times(const Dim& dim, int64_t by) {
  if (by == 1) return dim;
  return dim.is_known() && dim.size() <= kMaxDim / by ? Dim(dim.size() * by) : Dim();
}

absl::Status InferBlocks(InferenceContext& context, bool to_space) {
  WEFT_ASSIGN_OR_RETURN(const int64_t block, BlockSize(context));
  const SymbolicShape& x = context.InputShape(0);
  const DType dtype = context.InputType(0).dtype;
  if (!x.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape(UnknownDims(4)));
    return absl::OkStatus();
  }
  if (x.rank() != 4) {
    return context.Error(absl::StrCat("input has shape ", x.ToString(),
                                      ", expected [batch, channels, height, width]"));
  }
  Dims y = {x.dim(0)};
  if (to_space) {
    WEFT_ASSIGN_OR_RETURN(y.emplace_back(), Divided(context, x.dim(1), block * block));
    for (int i = 2; i < 4; ++i) y.push_back(Times(x.dim(i), block));
  } else {
    y.push_back(Times(x.dim(1), block * block));
    for (int i = 2; i < 4; ++i) {
      WEFT_ASSIGN_OR_RETURN(y.emplace_back(), Divided(context, x.dim(i), block));
    }
  }
  return SetCheckedOutput(context, dtype, std::move(y));
}

absl::Status InferDepthToSpace(InferenceContext& context) { return InferBlocks(context, true); }
absl::Status InferSpaceToDepth(InferenceContext& context) { return InferBlocks(context, false); }

GradientFn GradientBy(std::string inverse) {
  return [inverse = std::move(inverse)](GradientContext& context) {
    const ValueId dy = context.OutputGradient(0);
    if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
    GraphBuilder& g = context.builder();
    context.SetInputGradient(0, g.Op(inverse, {dy}, context.node().attributes));
    return g.status();
  };
}

// Depth[n, (a b c), h, w], or [n, (c a b), h, w] in mode CRD, is Space[n, c, (h a), (w b)].
absl::StatusOr<FactorRule> BlocksRule(const NodeView& view, bool to_space) {
  const Shape& depth = to_space ? view.InputShape(0) : view.OutputShape(0);
  const int64_t block = view.attributes().Int("blocksize", 1);
  FactorRuleBuilder rule;
  const int n = rule.Factor(depth.dim(0));
  const int c = rule.Factor(depth.dim(1) / (block * block));
  const int h = rule.Factor(depth.dim(2));
  const int w = rule.Factor(depth.dim(3));
  const int a = rule.Factor(block, FactorKind::kWhole);
  const int b = rule.Factor(block, FactorKind::kWhole);
  std::vector<int> channels = {a, b, c};
  if (view.attributes().String("mode", "DCR") == "CRD") channels = {c, a, b};
  const std::vector<std::vector<int>> of_depth = {{n}, channels, {h}, {w}};
  const std::vector<std::vector<int>> of_space = {{n}, {c}, {h, a}, {w, b}};
  rule.FactoredInput(to_space ? of_depth : of_space);
  rule.FactoredOutput(to_space ? of_space : of_depth);
  return rule.Linear({{0}}).Build();
}

absl::StatusOr<FactorRule> DepthToSpaceRule(const NodeView& view) { return BlocksRule(view, true); }
absl::StatusOr<FactorRule> SpaceToDepthRule(const NodeView& view) {
  return BlocksRule(view, false);
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("DepthToSpace")
                     .Input("input")
                     .Output("output")
                     .Attr("blocksize", AttributeType::kInt, true)
                     .Attr("mode", AttributeType::kString)
                     .Elements(ElementUse::kMoves)
                     .Infer(InferDepthToSpace)
                     .Gradient(GradientBy("SpaceToDepth"))
                     .Sharding(DepthToSpaceRule)
                     .CostOf(MovementCost));

WEFT_REGISTER_OP(OpSchema::Onnx("SpaceToDepth")
                     .Input("input")
                     .Output("output")
                     .Attr("blocksize", AttributeType::kInt, true)
                     .Attr("mode", AttributeType::kString)
                     .Elements(ElementUse::kMoves)
                     .Infer(InferSpaceToDepth)
                     .Gradient(GradientBy("DepthToSpace"))
                     .Sharding(SpaceToDepthRule)
                     .CostOf(MovementCost));

}  // namespace weft
