// The samples of a classification loss: geometry, labels and weights.
#ifndef WEFT_OPS_KERNELS_CPU_LOSS_LOSS_SAMPLES_H_
#define WEFT_OPS_KERNELS_CPU_LOSS_LOSS_SAMPLES_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {

// The attribute reduction of a loss.
enum class LossReduction : uint8_t { kNone, kSum, kMean };

// Scores [batch, classes, inner...] as batch x classes x inner; sample s = n * inner + i has the
// scores FirstScore(s) + k * inner.
struct LossSamples {
  int64_t batch = 0;
  int64_t classes = 0;
  int64_t inner = 1;
  LossReduction reduction = LossReduction::kMean;
  std::optional<int64_t> ignored;
  Shape label_shape;

  static LossSamples Of(const PrepareContext& context, int scores_input, int labels_input);

  int64_t count() const { return batch * inner; }
  int64_t FirstScore(int64_t sample) const {
    return sample / inner * classes * inner + sample % inner;
  }
  bool IsIgnored(int64_t label) const { return ignored.has_value() && label == *ignored; }

  // InvalidArgument naming the first label that is neither a class nor ignored, and its position.
  template <typename L>
  absl::Status CheckLabels(const L* labels) const {
    for (int64_t s = 0; s < count(); ++s) {
      const int64_t label = static_cast<int64_t>(labels[s]);
      if ((label >= 0 && label < classes) || IsIgnored(label)) continue;
      return BadLabel(label, s);
    }
    return absl::OkStatus();
  }

  // weights[label], or 1 when there are none; 0 for ignored samples. REQUIRES: CheckLabels.
  template <typename T>
  double Weight(int64_t label, const T* weights) const {
    if (IsIgnored(label)) return 0;
    return weights == nullptr ? 1 : static_cast<double>(Load(weights[label]));
  }

  // What a mean divides by: the sum of the weights.
  template <typename L, typename T>
  double TotalWeight(const L* labels, const T* weights) const {
    double total = 0;
    for (int64_t s = 0; s < count(); ++s) {
      total += Weight(static_cast<int64_t>(labels[s]), weights);
    }
    return total;
  }

 private:
  absl::Status BadLabel(int64_t label, int64_t sample) const;
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_LOSS_LOSS_SAMPLES_H_
