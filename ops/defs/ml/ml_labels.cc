#include "ops/defs/ml/ml_labels.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// So that pairs of classes can be counted.
constexpr int64_t kMaxClasses = int64_t{1} << 20;

// The labels by class number; one alone comes after its opposite.
Tensor LabelsOf(const Attributes& attributes, const std::string& int_labels) {
  std::vector<std::string> strings = attributes.Strings("classlabels_strings");
  std::vector<int64_t> ints = attributes.Ints(int_labels);
  if (!strings.empty()) {
    if (strings.size() == 1) strings.insert(strings.begin(), "");
    const Shape shape{static_cast<int64_t>(strings.size())};
    return Tensor::OfStrings(shape, std::move(strings));
  }
  if (ints.empty()) ints = {0, 1};
  if (ints.size() == 1) ints.insert(ints.begin(), 0);
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(ints.size())}, ints);
}

int64_t ClassCount(const Attributes& attributes, const std::string& int_labels) {
  const size_t labels = std::max(attributes.Strings("classlabels_strings").size(),
                                 attributes.Ints(int_labels).size());
  return std::max<int64_t>(static_cast<int64_t>(labels), 1);
}

void SetOutputs(InferenceContext& context, DType labels, int64_t classes) {
  const SymbolicShape& x = context.InputShape(0);
  const Dim rows = !x.has_rank() ? Dim() : x.rank() == 1 ? Dim(1) : x.dim(0);
  context.SetOutput(0, labels, SymbolicShape({rows}));
  context.SetOutput(1, DType::kFloat32, SymbolicShape({rows, Dim(ScoreColumns(classes))}));
}

absl::Status CheckRows(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  if (!x.has_rank() || x.rank() == 1 || x.rank() == 2) return absl::OkStatus();
  return context.Error(absl::StrCat("X is ", x.ToString(), ", expected [N,F]"));
}

}  // namespace

int64_t ScoreColumns(int64_t classes) { return std::max<int64_t>(classes, 2); }

InferFn InferClassifier(const std::string& int_labels) {
  return [int_labels](InferenceContext& context) {
    WEFT_RETURN_IF_ERROR(CheckRows(context));
    const Attributes& attributes = context.attributes();
    const bool strings = !attributes.Strings("classlabels_strings").empty();
    if (strings && !attributes.Ints(int_labels).empty()) {
      return context.Error(absl::StrCat("attributes classlabels_strings and ", int_labels,
                                        " are both given, expected one of them"));
    }
    SetOutputs(context, strings ? DType::kString : DType::kInt64,
               ClassCount(attributes, int_labels));
    return absl::OkStatus();
  };
}

ExpandFn ExpandClassifier(const std::string& op, const std::string& int_labels) {
  return [op, int_labels](ExpandContext& context) -> absl::StatusOr<std::vector<ValueId>> {
    const Node& node = context.node();
    GraphBuilder& b = context.builder();
    Attributes attributes = node.attributes;
    attributes.Erase("classlabels_strings");
    attributes.Erase(int_labels);
    attributes.Set("classes", ClassCount(node.attributes, int_labels));
    const std::vector<ValueId> parts =
        b.Ops(std::string(kWeftDomain), op, {node.inputs[0]}, attributes, {true, true});
    const ValueId labels = b.Constant(LabelsOf(node.attributes, int_labels));
    const ValueId label = b.Op("Gather", {labels, parts[0]});
    WEFT_RETURN_IF_ERROR(b.status());
    return std::vector<ValueId>{label, parts[1]};
  };
}

absl::Status InferClassify(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckRows(context));
  const int64_t classes = context.attributes().Int("classes", 1);
  if (classes < 1 || classes > kMaxClasses) {
    return context.Error(
        absl::StrCat("attribute classes is ", classes, ", expected 1 to ", kMaxClasses));
  }
  SetOutputs(context, DType::kInt64, classes);
  return absl::OkStatus();
}

}  // namespace weft
