// ConvPlan: the sizes of a convolution, and how its columns are cut into pieces that fit memory.
#ifndef WEFT_OPS_KERNELS_CUDA_CONV_CONV_PLAN_H_
#define WEFT_OPS_KERNELS_CUDA_CONV_CONV_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/conv/conv_calls.h"
#include "ops/window.h"

namespace weft::cuda {

// Columns and partial sums take at most so much of a kernel's workspace, if one sample and one
// channel or position do.
inline constexpr int64_t kColumnBytes = int64_t{256} << 20;
inline constexpr int64_t kPartialBytes = int64_t{64} << 20;

// A convolution from the large image [samples, groups * large_channels, ...] to the small one, as
// conv_calls.h says.
struct ConvPlan {
  DType dtype = DType::kFloat32;
  ConvWindow window;
  int64_t samples = 0;
  int64_t groups = 1;
  int64_t large_channels = 0;  // of a group
  int64_t small_channels = 0;  // of a group

  int64_t width() const { return DTypeBytes(dtype, 1); }
  // Bytes of an element of sums: columns of the large image, partial sums.
  int64_t sum_width() const { return dtype == DType::kFloat64 ? 8 : 4; }
  DType sum_dtype() const { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }
  int64_t filter() const { return large_channels * window.taps(); }
  int64_t large_sample() const { return groups * large_channels * window.large_size(); }
  int64_t small_sample() const { return groups * small_channels * window.small_size(); }
  // The columns are the large image itself: windows of one element, next to each other.
  bool is_plain() const;
  // Groups have so few channels that products of matrices would be slower than definitions.
  bool is_direct() const { return groups > 1 && large_channels * small_channels <= 16; }
};

// The windows of resolved axes. Unimplemented for more than 3 image axes, and for images or windows
// of 2^31 elements and more.
absl::StatusOr<ConvWindow> ConvWindowOf(const PrepareContext& context,
                                        const std::vector<WindowAxis>& axes);

// `large`, `weights` and `small` are the shapes of the operands with these roles, `axes` the
// windows. InvalidArgument for shapes that do not belong together; Unimplemented for types other
// than the floating ones of 16 bits and more, and as ConvWindowOf says.
absl::StatusOr<ConvPlan> PlanConv(const PrepareContext& context, const Shape& large,
                                  const Shape& weights, const Shape& small,
                                  const std::vector<WindowAxis>& axes);

// A piece: some samples, and of what each of them has (positions or channels), some.
struct ConvPiece {
  int64_t first_sample = 0;
  int64_t samples = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// Cuts `samples` * `extent` things of `bytes` each, into pieces of at most `limit` bytes: whole
// samples where one fits, at most max_samples, else pieces of one sample. REQUIRES: samples, extent
// and max_samples are at least 1.
std::vector<ConvPiece> CutPieces(int64_t samples, int64_t extent, int64_t bytes, int64_t limit,
                                 int64_t max_samples);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_CONV_CONV_PLAN_H_
