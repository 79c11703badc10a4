// ai.onnx.ml: linear models and support vector machines. Rows [N, F] of features to float32 scores;
// the classifiers' labels are looked up as ml_labels.h says.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/ml/ml_domain.h"
#include "ops/defs/ml/ml_labels.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr char kTrainedElsewhere[] = "trained elsewhere, with fixed coefficients";

// [N, targets].
absl::Status InferRegressor(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  if (x.has_rank() && x.rank() != 1 && x.rank() != 2) {
    return context.Error(absl::StrCat("X is ", x.ToString(), ", expected [N,F]"));
  }
  const int64_t targets = context.attributes().Int("targets", 1);
  if (targets < 1) return context.Error(absl::StrCat("attribute targets is ", targets));
  const Dim rows = !x.has_rank() ? Dim() : x.rank() == 1 ? Dim(1) : x.dim(0);
  return SetCheckedOutput(context, DType::kFloat32, {rows, Dim(targets)});
}

OpSchema OfRows(OpSchema schema) {
  return schema.Input("X", kMlRowTypes).Attr("post_transform", AttributeType::kString);
}

OpSchema WithLabels(OpSchema schema, const std::string& op) {
  return schema.Output("Y")
      .OptionalOutput("Z")
      .Attr("classlabels_ints", AttributeType::kInts)
      .Attr("classlabels_strings", AttributeType::kStrings)
      .Infer(InferClassifier("classlabels_ints"))
      .Expand(ExpandClassifier(op, "classlabels_ints"));
}

// What ExpandClassifier makes: (X) -> number of the class [N], scores [N, columns].
OpSchema Classify(std::string name) {
  return OfRows(OpSchema::Weft(std::move(name)))
      .Output("class")
      .OptionalOutput("scores")
      .Attr("classes", AttributeType::kInt, /*required=*/true)
      .Infer(InferClassify);
}

OpSchema WithLinear(OpSchema schema) {
  return schema.Attr("coefficients", AttributeType::kFloats)
      .Attr("intercepts", AttributeType::kFloats)
      .Attr("multi_class", AttributeType::kInt);
}

OpSchema WithVectors(OpSchema schema) {
  for (const char* name :
       {"coefficients", "kernel_params", "prob_a", "prob_b", "rho", "support_vectors"}) {
    schema.Attr(name, AttributeType::kFloats);
  }
  return schema.Attr("kernel_type", AttributeType::kString)
      .Attr("vectors_per_class", AttributeType::kInts);
}

// Y = X W^T + intercepts, where nothing is done to it afterwards.
absl::Status LinearRegressorGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  const Attributes& attributes = context.node().attributes;
  const std::string transform = attributes.String("post_transform", "NONE");
  if (transform != "NONE") {
    return absl::UnimplementedError(absl::StrCat("node '", context.node().name,
                                                 "': LinearRegressor has a gradient with ",
                                                 "post_transform NONE only, this is ", transform));
  }
  GraphBuilder& b = context.builder();
  const ValueId x = context.Input(0);
  const std::vector<float> w = attributes.Floats("coefficients");
  const ValueId flat = b.Constant(Tensor::Of<float>(Shape{static_cast<int64_t>(w.size())}, w));
  const ValueId matrix = b.Op("Reshape", {flat, b.Ints({attributes.Int("targets", 1), -1})});
  const ValueId rows = b.Op("Reshape", {b.Op("MatMul", {dy, matrix}), ShapeOf(b, x)});
  context.SetInputGradient(0, AsDType(b, rows, b.type(x).dtype));
  return b.status();
}

WEFT_REGISTER_OP(OfRows(OpSchema(kMlDomain, "LinearRegressor"))
                     .Output("Y")
                     .Attr("coefficients", AttributeType::kFloats)
                     .Attr("intercepts", AttributeType::kFloats)
                     .Attr("targets", AttributeType::kInt)
                     .Infer(InferRegressor)
                     .Gradient(LinearRegressorGradient));
WEFT_REGISTER_OP(WithLinear(WithLabels(OfRows(OpSchema(kMlDomain, "LinearClassifier")),
                                       "LinearClassify"))
                     .GradientMissing(kTrainedElsewhere));
WEFT_REGISTER_OP(WithLinear(Classify("LinearClassify")).GradientMissing(kTrainedElsewhere));

WEFT_REGISTER_OP(WithVectors(OfRows(OpSchema(kMlDomain, "SVMRegressor")))
                     .Output("Y")
                     .Attr("n_supports", AttributeType::kInt)
                     .Attr("n_targets", AttributeType::kInt)
                     .Attr("one_class", AttributeType::kInt)
                     .Infer(InferRegressor)
                     .GradientMissing(kTrainedElsewhere));
// Columns of the scores: one per class where the machine gives probabilities or is linear, else one
// per pair of classes; but never fewer than two.
InferFn WithSvmColumns(InferFn infer) {
  return [infer = std::move(infer)](InferenceContext& context) {
    WEFT_RETURN_IF_ERROR(infer(context));
    const Attributes& attributes = context.attributes();
    const size_t labels = std::max(attributes.Strings("classlabels_strings").size(),
                                   attributes.Ints("classlabels_ints").size());
    const int64_t classes = attributes.Int("classes", static_cast<int64_t>(labels));
    const bool pairs =
        !attributes.Ints("vectors_per_class").empty() && attributes.Floats("prob_a").empty();
    if (!pairs || classes > (int64_t{1} << 20)) return absl::OkStatus();
    const SymbolicShape& x = context.InputShape(0);
    const Dim rows = !x.has_rank() ? Dim() : x.rank() == 1 ? Dim(1) : x.dim(0);
    const int64_t columns = ScoreColumns(classes * (classes - 1) / 2);
    context.SetOutput(1, DType::kFloat32, SymbolicShape({rows, Dim(columns)}));
    return absl::OkStatus();
  };
}

WEFT_REGISTER_OP(WithVectors(WithLabels(OfRows(OpSchema(kMlDomain, "SVMClassifier")),
                                        "SvmClassify"))
                     .Infer(WithSvmColumns(InferClassifier("classlabels_ints")))
                     .GradientMissing(kTrainedElsewhere));
WEFT_REGISTER_OP(WithVectors(Classify("SvmClassify"))
                     .Infer(WithSvmColumns(InferClassify))
                     .GradientMissing(kTrainedElsewhere));

}  // namespace
}  // namespace weft
