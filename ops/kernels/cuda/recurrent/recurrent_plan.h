// What the factories of recurrent layers share: sizes, activations, products.
#ifndef WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_PLAN_H_
#define WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/linear/batched_product.h"
#include "ops/kernels/cuda/recurrent/recurrent_launch.h"

namespace weft::cuda {

// Value type.
struct RecurrentPlan {
  DType dtype = DType::kFloat32;
  bool tf32 = false;
  RecurrentSteps steps;  // but for the lengths
  int64_t input = 0;     // width of X
  float clip = 0;
  // The activations of one direction, then those of the other.
  std::vector<CellActivation> activations;
  std::string lengths_source;  // of a fault

  int64_t gates() const { return steps.gates * steps.hidden; }
  // Activation `i` of those of a direction.
  void CopyActivations(int i, CellActivation (&to)[kMaxDirections]) const;
};

// Of RNN (one gate), GRU (three) and LSTM (four); of their gradients. Unimplemented when a state
// has 2^31 elements or more.
absl::StatusOr<RecurrentPlan> PlanRecurrent(const PrepareContext& context, int32_t gates);
absl::StatusOr<RecurrentPlan> PlanRecurrentGrad(const PrepareContext& context, int32_t gates);

// Y[d] = A[d] B[d] (or B[d]^T) for all directions. A and Y are stored without gaps; B[d] begins at
// b_direction * d + b_begin, in elements, and its rows have no gaps.
struct GateProductSizes {
  int64_t directions = 1;
  int64_t m = 0, n = 0, k = 0;
  bool trans_b = false;
  int64_t b_direction = 0;
  int64_t b_begin = 0;
};

// Computed by the library. Y is float64 for float64, else float32. Owned by a kernel.
class GateProduct {
 public:
  GateProduct() = default;  // not to be run
  // REQUIRES: no size is zero. Unimplemented when the library has no algorithm.
  static absl::StatusOr<GateProduct> Create(const PrepareContext& context,
                                            const RecurrentPlan& plan,
                                            const GateProductSizes& sizes);

  size_t workspace_bytes() const { return product_ == nullptr ? 0 : product_->workspace_bytes(); }
  absl::Status Run(const void* a, const void* b, void* y, void* workspace, LaunchQueue queue);

 private:
  std::unique_ptr<BatchedProduct> product_;
  size_t b_begin_ = 0;  // in bytes
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_PLAN_H_
