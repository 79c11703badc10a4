// Softmax cross entropy in all its forms; formulas: torch.nn.CrossEntropyLoss.
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "training/graph/loss_parts.h"

namespace weft {
namespace {

absl::StatusOr<int> ClassAxis(const LossSpec& spec, const ValueDef& output) {
  const SymbolicShape& shape = output.type.shape;
  if (!shape.has_rank() || shape.rank() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        spec.kind, " needs scores of rank 2 or more, one axis for the classes; output '",
        output.name, "' is ", output.type.ToString()));
  }
  if (spec.kind == "sequence_cross_entropy" && shape.rank() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequence_cross_entropy needs scores [samples, positions, classes]; output '",
                     output.name, "' is ", output.type.ToString()));
  }
  WEFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(spec.class_axis, shape.rank()));
  if (axis == 0) return absl::InvalidArgumentError("the class axis must not be the sample axis");
  return axis;
}

// x with the classes on axis 1.
ValueId ClassesSecond(GraphBuilder& builder, ValueId x, int axis) {
  if (axis == 1) return x;
  std::vector<int64_t> order(builder.type(x).shape.rank());
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + axis);
  order.insert(order.begin() + 1, axis);
  return builder.Op("Transpose", {x}, {{"perm", order}});
}

ValueType IndexLabels(const ValueType& scores) {
  std::vector<Dim> dims = {scores.shape.dim(0)};
  for (int i = 2; i < scores.shape.rank(); ++i) dims.push_back(scores.shape.dim(i));
  return {ValueKind::kTensor, DType::kInt64, SymbolicShape(std::move(dims))};
}

struct ClassPrediction {
  ValueId scores;  // classes second
  int axis = 1;    // of the classes in the model's output
  ValueId output;
};

absl::StatusOr<ClassPrediction> ScoresOf(GraphBuilder& builder, const LossSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const ValueId output, FindPrediction(builder.graph(), spec));
  WEFT_ASSIGN_OR_RETURN(const int axis, ClassAxis(spec, builder.graph().value(output)));
  const ValueId scores = ClassesSecond(builder, output, axis);
  WEFT_RETURN_IF_ERROR(builder.status());
  return ClassPrediction{scores, axis, output};
}

absl::StatusOr<int64_t> NumClasses(const GraphBuilder& builder, ValueId scores, const char* why) {
  const Dim& classes = builder.type(scores).shape.dim(1);
  if (classes.is_known()) return classes.size();
  return absl::InvalidArgumentError(
      absl::StrCat(why, " needs to know the number of classes, but the model leaves it open"));
}

// The weights of the classes as a constant of the scores' dtype; kNoValue when there are none.
absl::StatusOr<ValueId> ClassWeights(GraphBuilder& builder, const LossSpec& spec, ValueId scores) {
  if (spec.class_weights.empty()) return kNoValue;
  WEFT_ASSIGN_OR_RETURN(const int64_t classes, NumClasses(builder, scores, "--class-weights"));
  const auto given = static_cast<int64_t>(spec.class_weights.size());
  if (given != classes) {
    return absl::InvalidArgumentError(
        absl::StrCat(given, " class weights were given for ", classes, " classes"));
  }
  const Tensor weights = Tensor::Of<double>({classes}, spec.class_weights);
  WEFT_ASSIGN_OR_RETURN(Tensor cast, CastTensor(weights, builder.type(scores).dtype));
  return builder.Constant(std::move(cast), "class_weights");
}

// x [N,C,d...] times a number for each class.
ValueId TimesWeights(GraphBuilder& builder, ValueId x, ValueId weights) {
  if (!weights.valid()) return x;
  std::vector<int64_t> shape(builder.type(x).shape.rank() - 1, 1);
  shape[0] = -1;
  return builder.Op("Mul", {x, builder.Op("Reshape", {weights, builder.Ints(shape)})});
}

ValueId SumOverClasses(GraphBuilder& builder, ValueId x) {
  return builder.Op("ReduceSum", {x, builder.Ints({1})}, {{"keepdims", int64_t{0}}});
}

// The target is 1 - smoothing of the label and smoothing / C of every class:
//   (1 - s) sum + s / C sum over what counts of -weights log_prob.
absl::StatusOr<ValueId> Smoothed(GraphBuilder& builder, const LossSpec& spec, ValueId sum,
                                 ValueId log_prob, ValueId labels, ValueId weights) {
  WEFT_ASSIGN_OR_RETURN(const int64_t classes, NumClasses(builder, log_prob, "--label-smoothing"));
  const DType dtype = builder.type(log_prob).dtype;
  ValueId of_sample = SumOverClasses(builder, TimesWeights(builder, log_prob, weights));
  if (spec.ignore_index.has_value()) {
    const ValueId ignored = IsIgnored(builder, spec, labels);
    of_sample = builder.Op("Where", {ignored, builder.Scalar(dtype, 0), of_sample});
  }
  const double share = spec.label_smoothing / static_cast<double>(classes);
  const ValueId of_label =
      builder.Op("Mul", {sum, builder.Scalar(dtype, 1 - spec.label_smoothing)});
  const ValueId of_all =
      builder.Op("Mul", {SumOfAll(builder, of_sample), builder.Scalar(dtype, share)});
  return builder.Op("Sub", {of_label, of_all});
}

absl::StatusOr<MeanParts> IndexCrossEntropy(GraphBuilder& builder, const LossSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const ClassPrediction prediction, ScoresOf(builder, spec));
  const ValueId scores = prediction.scores;
  const ValueId labels = LabelsInput(builder.graph(), IndexLabels(builder.type(scores)));
  WEFT_ASSIGN_OR_RETURN(const ValueId weights, ClassWeights(builder, spec, scores));
  std::vector<ValueId> inputs = {scores, labels};
  std::vector<ValueId> counted = {labels};
  if (weights.valid()) {
    inputs.push_back(weights);
    counted.push_back(weights);
  }
  const bool smooth = spec.label_smoothing > 0;
  Attributes attributes = {{"reduction", std::string("sum")}};
  Attributes count_attributes = {{"dtype", static_cast<int64_t>(builder.type(scores).dtype)}};
  if (spec.ignore_index.has_value()) {
    attributes.Set("ignore_index", *spec.ignore_index);
    count_attributes.Set("ignore_index", *spec.ignore_index);
  }
  const std::vector<ValueId> loss =
      builder.Ops("", "SoftmaxCrossEntropyLoss", std::move(inputs), std::move(attributes),
                  smooth ? std::vector<bool>{true, true} : std::vector<bool>{true});
  WEFT_RETURN_IF_ERROR(builder.status());
  MeanParts parts;
  parts.sum = loss[0];
  if (smooth) {
    WEFT_ASSIGN_OR_RETURN(parts.sum, Smoothed(builder, spec, loss[0], loss[1], labels, weights));
  }
  parts.weight = builder.WeftOp("LossWeight", std::move(counted), std::move(count_attributes));
  WEFT_RETURN_IF_ERROR(builder.status());
  return parts;
}

// Labels are a distribution over the classes: -sum of labels log softmax(scores) for each sample,
// and the mean is over samples (and positions), whatever the weights.
absl::StatusOr<MeanParts> SoftCrossEntropy(GraphBuilder& builder, const LossSpec& spec) {
  if (spec.ignore_index.has_value()) {
    return absl::InvalidArgumentError("soft labels name no class, so none can be ignored");
  }
  WEFT_ASSIGN_OR_RETURN(const ClassPrediction prediction, ScoresOf(builder, spec));
  const ValueId scores = prediction.scores;
  const DType dtype = builder.type(scores).dtype;
  ValueId labels = ClassesSecond(builder, LabelsLike(builder, prediction.output), prediction.axis);
  WEFT_ASSIGN_OR_RETURN(const ValueId weights, ClassWeights(builder, spec, scores));
  if (spec.label_smoothing > 0) {
    WEFT_ASSIGN_OR_RETURN(const int64_t classes, NumClasses(builder, scores, "--label-smoothing"));
    const double share = spec.label_smoothing / static_cast<double>(classes);
    labels = builder.Op("Mul", {labels, builder.Scalar(dtype, 1 - spec.label_smoothing)});
    labels = builder.Op("Add", {labels, builder.Scalar(dtype, share)});
  }
  const ValueId log_prob = builder.Op("LogSoftmax", {scores}, {{"axis", int64_t{1}}});
  const ValueId product = builder.Op("Mul", {TimesWeights(builder, labels, weights), log_prob});
  MeanParts parts;
  parts.sum = builder.Op("Neg", {SumOfAll(builder, product)});
  parts.weight = builder.WeftOp("ElementCount", {SumOverClasses(builder, product)});
  WEFT_RETURN_IF_ERROR(builder.status());
  return parts;
}

}  // namespace

ValueId IsIgnored(GraphBuilder& builder, const LossSpec& spec, ValueId labels) {
  const ValueId index = builder.Constant(Tensor::Scalar<int64_t>(*spec.ignore_index));
  const int64_t dtype = static_cast<int64_t>(builder.type(labels).dtype);
  return builder.Op("Equal", {labels, builder.Op("Cast", {index}, {{"to", dtype}})});
}

bool IsClassification(const LossSpec& spec) {
  return spec.kind == "softmax_cross_entropy" || spec.kind == "sequence_cross_entropy";
}

absl::StatusOr<MeanParts> AddCrossEntropy(GraphBuilder& builder, const LossSpec& spec) {
  if (!(spec.label_smoothing >= 0 && spec.label_smoothing < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("label smoothing is ", spec.label_smoothing, ", expected a number in [0, 1)"));
  }
  return spec.soft_labels ? SoftCrossEntropy(builder, spec) : IndexCrossEntropy(builder, spec);
}

absl::StatusOr<ClassScores> ScoresAndLabels(GraphBuilder& builder, const LossSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const ClassPrediction prediction, ScoresOf(builder, spec));
  ClassScores made{prediction.scores, kNoValue};
  if (spec.soft_labels) {
    made.labels = builder.Op(
        "ArgMax", {ClassesSecond(builder, LabelsLike(builder, prediction.output), prediction.axis)},
        {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  } else {
    const ValueId labels =
        LabelsInput(builder.graph(), IndexLabels(builder.type(prediction.scores)));
    made.labels = builder.Op("Cast", {labels}, {{"to", static_cast<int64_t>(DType::kInt64)}});
  }
  WEFT_RETURN_IF_ERROR(builder.status());
  return made;
}

}  // namespace weft
