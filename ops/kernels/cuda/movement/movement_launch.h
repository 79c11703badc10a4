// Launches of movement_body.h. Each returns CUDA's error number; bytes of an element are 1, 2, 4, 8
// or 16.
#ifndef WEFT_OPS_KERNELS_CUDA_MOVEMENT_MOVEMENT_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_MOVEMENT_MOVEMENT_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// Writes numbers that the host knows.
inline constexpr int kMaxWrittenInts = 16;
struct IntsCall {
  int64_t* to = nullptr;
  int count = 0;
  int64_t values[kMaxWrittenInts] = {};
};
int LaunchInts(LaunchQueue queue, const IntsCall& call);

// y[i] = start + i delta. Any number.
int LaunchRange(LaunchQueue queue, DType dtype, const void* start, const void* delta, void* y,
                int64_t count);

// Matrices of which the elements above or below a diagonal are cleared.
struct TriluCall {
  const void* x = nullptr;
  void* y = nullptr;
  const int64_t* k = nullptr;  // null: 0
  int64_t count = 0;           // elements
  int64_t rows = 1;
  int64_t columns = 1;
  bool upper = true;
};
int LaunchTrilu(LaunchQueue queue, int bytes, const TriluCall& call);

// One on the k-th diagonal, zero elsewhere; RealLaunches.
int LaunchEye(LaunchQueue queue, DType dtype, void* y, int64_t rows, int64_t columns, int64_t k);

// Indices are [outer, inner] and y is [outer, depth, inner]: values[1] where the index names the
// place, values[0] elsewhere. Indices outside of [-depth, depth) are nowhere on.
struct OneHotCall {
  const void* indices = nullptr;  // of any number
  DType index_dtype = DType::kInt64;
  const void* values = nullptr;
  void* y = nullptr;
  int64_t count = 0;  // elements of y
  int64_t depth = 0;
  int64_t inner = 1;
};
int LaunchOneHot(LaunchQueue queue, int bytes, const OneHotCall& call);

// What lies beyond an axis.
enum class Beyond : uint8_t { kFill, kReflect, kEdge, kWrap };
// Element i of the output is `first` + i - `before` of the input, if i - before is in [0, kept);
// else the mode says.
struct PadAxis {
  int64_t size = 1;  // of the output
  int64_t before = 0;
  int64_t first = 0;
  int64_t kept = 1;
  int64_t stride = 0;  // of the input
};
inline constexpr int kMaxPadAxes = 8;
struct PadCall {
  const void* x = nullptr;
  const void* fill = nullptr;  // null: zero
  void* y = nullptr;
  int64_t count = 0;
  int axes = 1;
  PadAxis axis[kMaxPadAxes];  // minor first
  Beyond beyond = Beyond::kFill;
};
int LaunchPad(LaunchQueue queue, int bytes, const PadCall& call);

// X as [outer, first, middle, second, inner]; first and second are the batch and the time, or the
// other way round.
struct ReverseCall {
  const void* x = nullptr;
  const int64_t* lengths = nullptr;
  void* y = nullptr;
  int64_t count = 0;
  int64_t first = 1;
  int64_t middle = 1;
  int64_t second = 1;
  int64_t inner = 1;
  bool batch_is_first = false;
  FaultReport report;  // of lengths
};
int LaunchReverse(LaunchQueue queue, int bytes, const ReverseCall& call);

// y = weight x; *total = weight where total is not null. Floats.
int LaunchRunningTerm(LaunchQueue queue, DType dtype, const void* x, void* y, void* total,
                      int64_t count, double weight);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_MOVEMENT_MOVEMENT_LAUNCH_H_
