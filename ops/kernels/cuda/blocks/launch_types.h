// Choice of a body by the type or size of elements, for .cu files.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_LAUNCH_TYPES_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_LAUNCH_TYPES_H_

#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// CUDA's cudaErrorInvalidValue: what a launch of a type that it has no body for returns. Factories
// refuse such types before.
inline constexpr int kNoSuchBody = 1;

template <typename... Ts>
struct LaunchTypes {};
using FloatLaunches = LaunchTypes<float, double, Float16, Bfloat16>;
using NumberLaunches = LaunchTypes<float, double, Float16, Bfloat16, int8_t, int16_t, int32_t,
                                   int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;
using RealLaunches = LaunchTypes<float, double, Float16, Bfloat16, int8_t, int16_t, int32_t,
                                 int64_t, uint8_t, uint16_t, uint32_t, uint64_t, bool>;

// launch(T{}) for the type of the list that `dtype` names; it returns CUDA's error number.
template <typename... Ts, typename Fn>
int LaunchByType(DType dtype, LaunchTypes<Ts...> /*types*/, Fn launch) {
  int code = kNoSuchBody;
  static_cast<void>(((dtype == DTypeOf<Ts>::value ? (code = launch(Ts{}), true) : false) || ...));
  return code;
}

// An element of 16 bytes: complex128.
struct alignas(16) SixteenBytes {
  uint64_t words[2];
};

// launch(T{}) for the unsigned type of this many bytes: 1, 2, 4, 8 or 16.
template <typename Fn>
int LaunchByWidth(int bytes, Fn launch) {
  switch (bytes) {
    case 1:
      return launch(uint8_t{});
    case 2:
      return launch(uint16_t{});
    case 4:
      return launch(uint32_t{});
    case 8:
      return launch(uint64_t{});
    case 16:
      return launch(SixteenBytes{});
    default:
      return kNoSuchBody;
  }
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_LAUNCH_TYPES_H_
