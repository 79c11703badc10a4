#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/reduction/spread_body.h"
#include "ops/kernels/cuda/reduction/spread_launch.h"

namespace weft::cuda {
namespace {

constexpr int kSpreadThreads = 256;

}  // namespace

template <typename T>
int LaunchSpread(LaunchQueue queue, const SpreadPlan& plan, const T* small, T* big) {
  const LaunchGrid grid = {.blocks = Blocks(plan.packets, kSpreadThreads),
                           .threads = kSpreadThreads};
  if constexpr (!std::is_integral_v<T>) {
    if (plan.width > 1) {
      return Launch<kSpreadThreads>(queue, grid, SpreadBody<T, kWidest<T>>{plan, small, big});
    }
  }
  return Launch<kSpreadThreads>(queue, grid, SpreadBody<T, 1>{plan, small, big});
}

template <typename T>
int LaunchConstant(LaunchQueue queue, int64_t value, T* y) {
  return Launch<kWarp>(queue, {.blocks = 1, .threads = kWarp}, ConstantBody<T>{value, y});
}

#define WEFT_SPREAD(T)                                                     \
  template int LaunchSpread(LaunchQueue, const SpreadPlan&, const T*, T*); \
  template int LaunchConstant(LaunchQueue, int64_t, T*)
WEFT_SPREAD(float);
WEFT_SPREAD(double);
WEFT_SPREAD(Float16);
WEFT_SPREAD(Bfloat16);
WEFT_SPREAD(int8_t);
WEFT_SPREAD(int16_t);
WEFT_SPREAD(int32_t);
WEFT_SPREAD(int64_t);
WEFT_SPREAD(uint8_t);
WEFT_SPREAD(uint16_t);
WEFT_SPREAD(uint32_t);
WEFT_SPREAD(uint64_t);
#undef WEFT_SPREAD

}  // namespace weft::cuda
