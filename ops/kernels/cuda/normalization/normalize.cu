#include "ops/kernels/cuda/blocks/line_launch.h"
#include "ops/kernels/cuda/normalization/normalize_body.h"
#include "ops/kernels/cuda/normalization/normalize_calls.h"

namespace weft::cuda {
namespace {

template <bool kRms, typename T>
int LaunchNormalizeOf(LaunchQueue queue, const LineLaunch& line,
                      const NormalizeOperands<T>& operands) {
  const int64_t size = line.layout.size;
  if constexpr (!std::is_same_v<T, double>) {
    if (line.in_registers) {
      return LaunchRows(queue, line, NormalizeSource<T, kRms, float>{operands, size});
    }
  }
  return LaunchLines(queue, line, NormalizeSource<T, kRms, double>{operands, size});
}

}  // namespace

template <typename T>
int LaunchNormalize(LaunchQueue queue, const LineLaunch& line, bool rms,
                    const NormalizeOperands<T>& operands) {
  return rms ? LaunchNormalizeOf<true>(queue, line, operands)
             : LaunchNormalizeOf<false>(queue, line, operands);
}

template <typename T>
int LaunchMixedRms(LaunchQueue queue, const LineLaunch& line, const MixedRmsOperands<T>& operands) {
  return LaunchLines(queue, line, MixedRmsSource<T>{operands, line.layout.size});
}

#define WEFT_NORMALIZE(T)                                                                          \
  template int LaunchNormalize(LaunchQueue, const LineLaunch&, bool, const NormalizeOperands<T>&); \
  template int LaunchMixedRms(LaunchQueue, const LineLaunch&, const MixedRmsOperands<T>&)
WEFT_NORMALIZE(float);
WEFT_NORMALIZE(double);
WEFT_NORMALIZE(Float16);
WEFT_NORMALIZE(Bfloat16);
#undef WEFT_NORMALIZE

}  // namespace weft::cuda
