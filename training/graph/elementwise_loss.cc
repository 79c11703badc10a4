// Losses that are a sum over elements of a prediction and labels of its shape. Formulas:
// torch.nn.MSELoss, L1Loss, HuberLoss, BCEWithLogitsLoss, and KLDivLoss with "batchmean".
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "training/graph/loss_parts.h"

namespace weft {
namespace {

struct Operands {
  GraphBuilder& builder;
  const LossSpec& spec;
  ValueId prediction;
  ValueId labels;

  ValueId Number(double value) const {
    return builder.Scalar(builder.type(prediction).dtype, value);
  }
  ValueId Distance() const { return builder.Op("Abs", {builder.Op("Sub", {prediction, labels})}); }
};

ValueId AbsoluteDifference(const Operands& x) { return x.Distance(); }

// With d the distance and c = min(d, delta): c (d - c / 2), which is d^2 / 2 up to delta and
// delta (d - delta / 2) beyond.
ValueId Huber(const Operands& x) {
  GraphBuilder& b = x.builder;
  const ValueId distance = x.Distance();
  const ValueId near = b.Op("Min", {distance, x.Number(x.spec.huber_delta)});
  const ValueId half = b.Op("Mul", {near, x.Number(0.5)});
  return b.Op("Mul", {near, b.Op("Sub", {distance, half})});
}

// log(1 + e^x) - x y, which is -y log(p) - (1 - y) log(1 - p) for p = 1 / (1 + e^-x).
ValueId BinaryCrossEntropy(const Operands& x) {
  GraphBuilder& b = x.builder;
  return b.Op("Sub", {b.Op("Softplus", {x.prediction}), b.Op("Mul", {x.prediction, x.labels})});
}

// y (log y - x) for a prediction x that is a log-probability; 0 where y is 0.
ValueId KullbackLeibler(const Operands& x) {
  GraphBuilder& b = x.builder;
  const ValueId positive = b.Op("Max", {x.labels, x.Number(1e-37)});
  const ValueId log_ratio = b.Op("Sub", {b.Op("Log", {positive}), x.prediction});
  return b.Op("Mul", {x.labels, log_ratio});
}

struct ElementwiseLoss {
  ValueId (*elements)(const Operands&);
  bool per_sample = false;  // the mean is over samples, not over elements
};

const std::map<std::string, ElementwiseLoss>& Losses() {
  static const auto* const kLosses = new std::map<std::string, ElementwiseLoss>{
      {"bce_with_logits", {BinaryCrossEntropy}},
      {"huber", {Huber}},
      {"kl_div", {KullbackLeibler, /*per_sample=*/true}},
      {"mae", {AbsoluteDifference}},
      {"mse", {nullptr}},  // an op of its own
  };
  return *kLosses;
}

}  // namespace

std::vector<std::string> ElementwiseLossKinds() {
  std::vector<std::string> kinds;
  for (const auto& [kind, loss] : Losses()) kinds.push_back(kind);
  return kinds;
}

absl::StatusOr<MeanParts> AddElementwiseLoss(GraphBuilder& builder, const LossSpec& spec) {
  const auto loss = Losses().find(spec.kind);
  if (loss == Losses().end()) {
    return absl::InternalError(absl::StrCat("'", spec.kind, "' is no loss of elements"));
  }
  WEFT_ASSIGN_OR_RETURN(const ValueId prediction, FindPrediction(builder.graph(), spec));
  const ValueId labels = LabelsLike(builder, prediction);
  MeanParts parts;
  if (loss->second.elements == nullptr) {
    parts.sum = builder.WeftOp("SquaredErrorSum", {prediction, labels});
  } else {
    parts.sum = SumOfAll(builder, loss->second.elements({builder, spec, prediction, labels}));
  }
  parts.weight = loss->second.per_sample ? SampleCount(builder, prediction)
                                         : builder.WeftOp("ElementCount", {prediction});
  WEFT_RETURN_IF_ERROR(builder.status());
  return parts;
}

}  // namespace weft
