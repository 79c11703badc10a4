// What the classifiers and regressors of ai.onnx.ml do with raw scores.
#ifndef WEFT_OPS_KERNELS_CPU_ML_ML_SCORES_H_
#define WEFT_OPS_KERNELS_CPU_ML_ML_SCORES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tensor/dtype.h"

namespace weft::cpu {

// The attribute post_transform of ai.onnx.ml.
enum class PostTransform : uint8_t { kNone, kSoftmax, kLogistic, kSoftmaxZero, kProbit };

// From "NONE", "SOFTMAX", ... InvalidArgument naming what it is instead.
absl::StatusOr<PostTransform> ParsePostTransform(const std::string& name);

// Transforms the scores of one row in place.
void ApplyPostTransform(PostTransform transform, double* scores, int64_t count);

// The first of the largest scores. REQUIRES: count > 0.
int64_t LargestScore(const double* scores, int64_t count);

// `count` elements of any real dtype as doubles, from element `first` on.
void LoadRow(DType dtype, const void* data, int64_t first, int64_t count, double* row);
// Stores `count` numbers as float32, float64 or float16 from element `first` on.
void StoreRow(DType dtype, const double* row, int64_t count, void* data, int64_t first);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_ML_ML_SCORES_H_
