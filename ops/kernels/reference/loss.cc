// Reference kernels of the losses and of what training counts.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "ops/kernels/reference/reference.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// The samples of a classification loss: scores[first + k * stride] is the score of class k.
struct Sample {
  int64_t index;  // into the labels
  int64_t first;
  int64_t stride;
};

class LossOperands {
 public:
  LossOperands(const ReferenceCall& call, int scores, int labels, int weights)
      : scores_(call.input(scores)), labels_(call.input(labels)) {
    if (call.has_input(weights)) weights_ = &call.input(weights);
    if (call.attributes().Has("ignore_index")) {
      ignored_ = static_cast<double>(call.attributes().Int("ignore_index", 0));
    }
  }

  int64_t classes() const { return scores_.shape.dim(1); }

  // fn(sample, label, weight), ignored samples left out.
  template <typename Fn>
  absl::Status ForEachSample(Fn fn) const {
    const int64_t inner = scores_.shape.ProductOf(2, scores_.shape.rank());
    for (int64_t i = 0; i < labels_.size(); ++i) {
      if (ignored_.has_value() && labels_[i] == *ignored_) continue;
      const int64_t label = static_cast<int64_t>(labels_[i]);
      if (label < 0 || label >= classes()) {
        return absl::InvalidArgumentError(absl::StrCat("label ", label, " is out of range"));
      }
      const double weight = weights_ == nullptr ? 1 : (*weights_)[label];
      fn(Sample{i, i / inner * classes() * inner + i % inner, inner}, label, weight);
    }
    return absl::OkStatus();
  }

 private:
  const ReferenceOperand& scores_;
  const ReferenceOperand& labels_;
  const ReferenceOperand* weights_ = nullptr;
  std::optional<double> ignored_;
};

double LogSumExp(const ReferenceOperand& x, const Sample& sample, int64_t classes) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t k = 0; k < classes; ++k) {
    largest = std::max(largest, x[sample.first + k * sample.stride]);
  }
  double sum = 0;
  for (int64_t k = 0; k < classes; ++k) {
    sum += std::exp(x[sample.first + k * sample.stride] - largest);
  }
  return largest + std::log(sum);
}

// log_prob of every sample, the ignored ones too.
void FillLogProbabilities(ReferenceCall& call, int64_t classes) {
  const ReferenceOperand& x = call.input(0);
  const int64_t inner = x.shape.ProductOf(2, x.shape.rank());
  for (int64_t i = 0; i < x.shape.dim(0) * inner; ++i) {
    const Sample sample{i, i / inner * classes * inner + i % inner, inner};
    const double log_sum = LogSumExp(x, sample, classes);
    for (int64_t k = 0; k < classes; ++k) {
      const int64_t at = sample.first + k * sample.stride;
      call.output(1)[at] = x[at] - log_sum;
    }
  }
}

absl::Status Loss(ReferenceCall& call, bool softmax) {
  const LossOperands operands(call, 0, 1, 2);
  const ReferenceOperand& x = call.input(0);
  ReferenceOperand& loss = call.output(0);
  const std::string reduction = call.attributes().String("reduction", "mean");
  double sum = 0;
  double weights = 0;
  WEFT_RETURN_IF_ERROR(
      operands.ForEachSample([&](const Sample& sample, int64_t label, double weight) {
        double log_probability = x[sample.first + label * sample.stride];
        if (softmax) log_probability -= LogSumExp(x, sample, operands.classes());
        if (reduction == "none") loss[sample.index] = -weight * log_probability;
        sum -= weight * log_probability;
        weights += weight;
      }));
  if (reduction == "sum") loss[0] = sum;
  if (reduction == "mean") loss[0] = sum / weights;
  if (call.has_output(1)) FillLogProbabilities(call, operands.classes());
  return absl::OkStatus();
}

absl::Status LossGrad(ReferenceCall& call, bool softmax) {
  const LossOperands operands(call, 1, 2, 3);
  const ReferenceOperand& dy = call.input(0);
  const ReferenceOperand& x = call.input(1);
  const std::string reduction = call.attributes().String("reduction", "mean");
  double divisor = 1;
  if (reduction == "mean") {
    divisor = 0;
    WEFT_RETURN_IF_ERROR(
        operands.ForEachSample([&](const Sample&, int64_t, double weight) { divisor += weight; }));
  }
  return operands.ForEachSample([&](const Sample& sample, int64_t label, double weight) {
    const double scale = weight * dy[reduction == "none" ? sample.index : 0] / divisor;
    if (softmax) {
      const double log_sum = LogSumExp(x, sample, operands.classes());
      for (int64_t k = 0; k < operands.classes(); ++k) {
        const int64_t at = sample.first + k * sample.stride;
        call.output(0)[at] = scale * std::exp(x[at] - log_sum);
      }
    }
    call.output(0)[sample.first + label * sample.stride] -= scale;
  });
}

absl::Status LossWeight(ReferenceCall& call) {
  const ReferenceOperand& labels = call.input(0);
  const bool ignores = call.attributes().Has("ignore_index");
  const double ignored = static_cast<double>(call.attributes().Int("ignore_index", 0));
  for (const double label : labels.values) {
    if (ignores && label == ignored) continue;
    if (!call.has_input(1)) {
      call.output(0)[0] += 1;
      continue;
    }
    const ReferenceOperand& weights = call.input(1);
    if (label < 0 || label >= static_cast<double>(weights.size())) {
      return absl::InvalidArgumentError(absl::StrCat("label ", label, " is out of range"));
    }
    call.output(0)[0] += weights[static_cast<int64_t>(label)];
  }
  return absl::OkStatus();
}

absl::Status CountCorrect(ReferenceCall& call) {
  const ReferenceOperand& x = call.input(0);
  const ReferenceOperand& labels = call.input(1);
  const int64_t inner = x.shape.ProductOf(2, x.shape.rank());
  const int64_t classes = x.shape.dim(1);
  for (int64_t i = 0; i < labels.size(); ++i) {
    const int64_t first = i / inner * classes * inner + i % inner;
    int64_t best = 0;
    for (int64_t k = 1; k < classes; ++k) {
      if (x[first + k * inner] > x[first + best * inner]) best = k;
    }
    if (classes > 0 && labels[i] == static_cast<double>(best)) call.output(0)[0] += 1;
  }
  return absl::OkStatus();
}

// Of a step's only micro-batch.
absl::Status PlaceSamples(ReferenceCall& call) {
  for (int64_t i = 0; i < call.input(0).size(); ++i) call.output(0)[i] = call.input(0)[i];
  return absl::OkStatus();
}

absl::Status SquaredError(ReferenceCall& call, bool mean) {
  const ReferenceOperand& a = call.input(0);
  for (int64_t i = 0; i < a.size(); ++i) {
    const double difference = a[i] - call.input(1)[i];
    call.output(0)[0] += difference * difference;
  }
  if (mean) {
    call.output(0)[0] /= static_cast<double>(a.slice.global_shape.num_elements());
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("", "SoftmaxCrossEntropyLoss",
                               ReferenceKernel([](ReferenceCall& call) {
                                 return Loss(call, /*softmax=*/true);
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("", "NegativeLogLikelihoodLoss",
                               ReferenceKernel([](ReferenceCall& call) {
                                 return Loss(call, /*softmax=*/false);
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "SoftmaxCrossEntropyGrad",
                               ReferenceKernel([](ReferenceCall& call) {
                                 return LossGrad(call, /*softmax=*/true);
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "NegativeLogLikelihoodGrad",
                               ReferenceKernel([](ReferenceCall& call) {
                                 return LossGrad(call, /*softmax=*/false);
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "LossWeight", ReferenceKernel(LossWeight));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "CountCorrect", ReferenceKernel(CountCorrect));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "PlaceSamples", ReferenceKernel(PlaceSamples));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "MeanSquaredError",
                               ReferenceKernel([](ReferenceCall& call) {
                                 return SquaredError(call, /*mean=*/true);
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "SquaredErrorSum",
                               ReferenceKernel([](ReferenceCall& call) {
                                 return SquaredError(call, /*mean=*/false);
                               }));

}  // namespace
}  // namespace weft::cpu
