// ai.onnx.ml: TreeEnsemble, TreeEnsembleRegressor, TreeEnsembleClassifier. Rows [N, F] of features
// to scores [N, targets]; the classifier's numbers come from ai.weft::TreeEnsembleClassify, and a
// Gather turns them into labels, which may be strings.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/defs/ml/ml_domain.h"
#include "ops/defs/ml/ml_labels.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// X: [N, F], or one row [F].
absl::StatusOr<Dim> RowCount(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  if (!x.has_rank()) return Dim();
  if (x.rank() == 1) return Dim(1);
  if (x.rank() == 2) return x.dim(0);
  return context.Error(absl::StrCat("X is ", x.ToString(), ", expected [N,F]"));
}

// One more than the largest; beyond kMaxDim where that is too large to count.
int64_t CountOf(const std::vector<int64_t>& values) {
  if (values.empty()) return 1;
  return std::min(*std::max_element(values.begin(), values.end()), kMaxDim) + 1;
}

// `dtype`: kInvalid: as X.
InferFn InferScores(std::string targets, DType dtype) {
  return [targets, dtype](InferenceContext& context) {
    WEFT_ASSIGN_OR_RETURN(const Dim rows, RowCount(context));
    const int64_t count =
        context.attributes().Int("n_targets", CountOf(context.attributes().Ints(targets)));
    if (count < 1 || count > kMaxDim) {
      return context.Error(absl::StrCat(count, " targets, expected 1 or more"));
    }
    const DType own = dtype == DType::kInvalid ? context.InputType(0).dtype : dtype;
    return SetCheckedOutput(context, own, {rows, Dim(count)});
  };
}

WEFT_REGISTER_OP(OpSchema(kMlDomain, "TreeEnsemble")
                     .Input("X", {DType::kFloat32, DType::kFloat64, DType::kFloat16})
                     .Output("Y")
                     .Attr("aggregate_function", AttributeType::kInt)
                     .Attr("leaf_targetids", AttributeType::kInts, /*required=*/true)
                     .Attr("leaf_weights", AttributeType::kTensor, /*required=*/true)
                     .Attr("membership_values", AttributeType::kTensor)
                     .Attr("n_targets", AttributeType::kInt)
                     .Attr("nodes_falseleafs", AttributeType::kInts, /*required=*/true)
                     .Attr("nodes_falsenodeids", AttributeType::kInts, /*required=*/true)
                     .Attr("nodes_featureids", AttributeType::kInts, /*required=*/true)
                     .Attr("nodes_hitrates", AttributeType::kTensor)
                     .Attr("nodes_missing_value_tracks_true", AttributeType::kInts)
                     .Attr("nodes_modes", AttributeType::kTensor, /*required=*/true)
                     .Attr("nodes_splits", AttributeType::kTensor, /*required=*/true)
                     .Attr("nodes_trueleafs", AttributeType::kInts, /*required=*/true)
                     .Attr("nodes_truenodeids", AttributeType::kInts, /*required=*/true)
                     .Attr("post_transform", AttributeType::kInt)
                     .Attr("tree_roots", AttributeType::kInts, /*required=*/true)
                     .Infer(InferScores("leaf_targetids", DType::kInvalid))
                     .NoGradient("constant between its steps"));

// The nodes and votes of the older forms.
OpSchema WithNodes(OpSchema schema, const std::string& votes) {
  for (const char* name :
       {"nodes_falsenodeids", "nodes_featureids", "nodes_missing_value_tracks_true",
        "nodes_nodeids", "nodes_treeids", "nodes_truenodeids"}) {
    schema.Attr(name, AttributeType::kInts);
  }
  for (const std::string& name : {std::string("base_values"), std::string("nodes_hitrates"),
                                  std::string("nodes_values"), votes + "_weights"}) {
    schema.Attr(name, AttributeType::kFloats).Attr(name + "_as_tensor", AttributeType::kTensor);
  }
  for (const char* name : {"_ids", "_nodeids", "_treeids"}) {
    schema.Attr(votes + name, AttributeType::kInts);
  }
  return schema.Attr("nodes_modes", AttributeType::kStrings)
      .Attr("post_transform", AttributeType::kString);
}

WEFT_REGISTER_OP(WithNodes(OpSchema(kMlDomain, "TreeEnsembleRegressor")
                               .Input("X", kMlRowTypes)
                               .Output("Y")
                               .Attr("aggregate_function", AttributeType::kString)
                               .Attr("n_targets", AttributeType::kInt)
                               .Infer(InferScores("target_ids", DType::kFloat32))
                               .NoGradient("constant between its steps"),
                           "target"));

WEFT_REGISTER_OP(WithNodes(OpSchema(kMlDomain, "TreeEnsembleClassifier")
                               .Input("X", kMlRowTypes)
                               .Output("Y")
                               .OptionalOutput("Z")
                               .Attr("classlabels_int64s", AttributeType::kInts)
                               .Attr("classlabels_strings", AttributeType::kStrings)
                               .Infer(InferClassifier("classlabels_int64s"))
                               .Expand(ExpandClassifier("TreeEnsembleClassify",
                                                        "classlabels_int64s"))
                               .NoGradient("constant between its steps"),
                           "class"));

// TreeEnsembleClassify(X) -> number of the class [N], scores [N, max(classes, 2) or classes].
WEFT_REGISTER_OP(WithNodes(OpSchema::Weft("TreeEnsembleClassify")
                               .Input("X", kMlRowTypes)
                               .Output("class")
                               .OptionalOutput("scores")
                               .Attr("classes", AttributeType::kInt, /*required=*/true)
                               .Infer(InferClassify)
                               .NoGradient("constant between its steps"),
                           "class"));

}  // namespace
}  // namespace weft
