// Labels of samples, for bodies: a label that is no class is reported and not used.
#ifndef WEFT_OPS_KERNELS_CUDA_LOSS_LOSS_LABELS_H_
#define WEFT_OPS_KERNELS_CUDA_LOSS_LOSS_LABELS_H_

#include <cstdint>

#include "ops/kernels/cuda/loss/loss_calls.h"

namespace weft::cuda {

struct SampleLabel {
  int64_t label;  // -1: ignored, or no class
  double weight;  // 0 then
};

template <class Gpu>
WEFT_GPU SampleLabel LabelOf(Gpu& gpu, const LossLabels& labels, int64_t sample) {
  const int64_t label = ReadIndex(gpu, labels.labels, sample);
  if (labels.has_ignored != 0 && label == labels.ignored) return {-1, 0.0};
  if (labels.any != 0) return {label, 1.0};
  if (!InRange(gpu, labels.report, label, sample)) return {-1, 0.0};
  if (labels.weights.data == nullptr) return {label, 1.0};
  return {label, ReadReal(gpu, labels.weights, label)};
}

// dy weight / total weight of a sample; zero where it does not count, whatever the others are.
template <class Gpu>
WEFT_GPU double ScaleOf(Gpu& gpu, const LossSlope& slope, const SampleLabel& found,
                        int64_t sample) {
  if (found.weight == 0) return 0;
  const double arriving = ReadReal(gpu, slope.dy, slope.per_sample != 0 ? sample : 0);
  const double scale = found.weight * arriving;
  if (slope.total_weight == nullptr) return scale;
  const double total = gpu.Global(slope.total_weight)[0];
  return scale / total;
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LOSS_LOSS_LABELS_H_
