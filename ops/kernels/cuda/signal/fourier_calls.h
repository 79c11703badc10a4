// Launches of Fourier transforms: ops/kernels/cuda/signal/fourier.cu, fourier_steps.cu.
#ifndef WEFT_OPS_KERNELS_CUDA_SIGNAL_FOURIER_CALLS_H_
#define WEFT_OPS_KERNELS_CUDA_SIGNAL_FOURIER_CALLS_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// A transform has at most 2^24 elements, or 2^26 with the padding of chirps.
inline constexpr int kMaxFourierPasses = 16;

// A pass takes one factor out of the size: size = before * factor * after. Its turns are those of
// elements j * after + i for 0 < j < factor and i < after, from `turns` on in the table.
struct FourierPass {
  int32_t factor = 1;
  int32_t before = 1;
  int32_t after = 1;
  int32_t turns = 0;
};

// y[k] = sum over i of x[i] exp(sign 2 pi j i k / length), by passes over `size` elements. Where
// the length has a prime factor above 5, it becomes a convolution of chirps: size is a power of two
// beyond twice the length. Addresses are those of the device; numbers are of the type of the sums,
// but chirps and filter, which are float64.
struct FourierPlan {
  int64_t length = 1;
  int64_t size = 1;
  bool is_inverse = false;  // sign is 1, else -1
  bool has_chirps = false;
  int32_t passes = 0;
  FourierPass pass[kMaxFourierPasses];
  const void* turns = nullptr;   // with sign 1
  const void* chirp = nullptr;   // [length]
  const void* filter = nullptr;  // [size], divided by size
};

// Where the elements of lines lie: element i of line l at (l / period) * outer + (l % period) *
// inner + i * step, for i < count.
struct FourierLineMap {
  int64_t period = 1;
  int64_t outer = 0;
  int64_t inner = 0;
  int64_t step = 1;
  int64_t count = 0;

  WEFT_GPU int64_t First(int64_t line) const {
    const int64_t row = line / period;
    return row * outer + (line - row * period) * inner;
  }
};

// Lines that are transformed. Elements behind the count of `from` are 0.
struct FourierLines {
  const void* x = nullptr;
  const void* window = nullptr;  // [from.count], null: 1
  void* y = nullptr;
  FourierLineMap from;
  FourierLineMap to;
  int64_t lines = 0;
  bool is_complex = false;   // x has pairs of numbers
  bool is_mirrored = false;  // x is the first half of a spectrum, whose other half mirrors it
  bool is_real = false;      // y has real numbers alone
  bool has_pairs = false;    // x and y are aligned to pairs of numbers
  double factor = 1;         // of y
};

// Bytes of shared memory that a block may take: compute capability 8.6 has 99 KiB.
inline constexpr size_t kFourierSharedBytes = 96 << 10;

// Bytes of one number of the sums.
inline size_t FourierNumberBytes(bool sums_in_double) { return sums_in_double ? 16 : 8; }
// A line fits the shared memory of a block.
inline bool FitsSharedMemory(const FourierPlan& plan, bool sums_in_double) {
  return 2 * static_cast<size_t>(plan.size) * FourierNumberBytes(sums_in_double) <=
         kFourierSharedBytes;
}

// Lines through shared memory, in one launch. `dtype`: of x and y; sums are in float64 where it is
// float64 or the plan has chirps, else in float32. Returns 0 or CUDA's error number. REQUIRES:
// FitsSharedMemory.
int LaunchFourierLines(LaunchQueue queue, DType dtype, const FourierPlan& plan,
                       const FourierLines& lines);
// Long lines through `scratch`, of 2 * size numbers for each of `count` lines from `first` on.
int LaunchFourierSteps(LaunchQueue queue, DType dtype, const FourierPlan& plan,
                       const FourierLines& lines, int64_t first, int64_t count, void* scratch);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_SIGNAL_FOURIER_CALLS_H_
