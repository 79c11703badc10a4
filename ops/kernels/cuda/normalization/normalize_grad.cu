#include "ops/kernels/cuda/blocks/fold_launch.h"
#include "ops/kernels/cuda/blocks/line_launch.h"
#include "ops/kernels/cuda/normalization/normalize_calls.h"
#include "ops/kernels/cuda/normalization/normalize_grad_body.h"

namespace weft::cuda {
namespace {

template <bool kRms, typename T>
int LaunchNormalizeGradOf(LaunchQueue queue, const LineLaunch& line,
                          const NormalizeGradOperands<T>& operands) {
  const int64_t size = line.layout.size;
  if constexpr (!std::is_same_v<T, double>) {
    if (line.in_registers) {
      return LaunchRows(queue, line, NormalizeGradSource<T, kRms, float>{operands, size});
    }
  }
  return LaunchLines(queue, line, NormalizeGradSource<T, kRms, double>{operands, size});
}

}  // namespace

template <typename T>
int LaunchNormalizeGrad(LaunchQueue queue, const LineLaunch& line, bool rms,
                        const NormalizeGradOperands<T>& operands) {
  return rms ? LaunchNormalizeGradOf<true>(queue, line, operands)
             : LaunchNormalizeGradOf<false>(queue, line, operands);
}

template <typename T>
int LaunchNormalizeColumns(LaunchQueue queue, const FoldLaunch& fold,
                           const NormalizeColumnsOperands<T>& operands, void* workspace) {
  return LaunchFold(queue, fold, NormalizeColumnsSource<T>{operands}, workspace);
}

#define WEFT_NORMALIZE_GRAD(T)                                           \
  template int LaunchNormalizeGrad(LaunchQueue, const LineLaunch&, bool, \
                                   const NormalizeGradOperands<T>&);     \
  template int LaunchNormalizeColumns(LaunchQueue, const FoldLaunch&,    \
                                      const NormalizeColumnsOperands<T>&, void*)
WEFT_NORMALIZE_GRAD(float);
WEFT_NORMALIZE_GRAD(double);
WEFT_NORMALIZE_GRAD(Float16);
WEFT_NORMALIZE_GRAD(Bfloat16);
#undef WEFT_NORMALIZE_GRAD

}  // namespace weft::cuda
