#include "ops/kernels/cuda/blocks/line_launch.h"
#include "ops/kernels/cuda/normalization/softmax_body.h"
#include "ops/kernels/cuda/normalization/softmax_launch.h"

namespace weft::cuda {
namespace {

template <bool kLog, typename T>
int LaunchSoftmaxOf(LaunchQueue queue, const LineLaunch& line, const T* x, T* y) {
  if constexpr (!std::is_same_v<T, double>) {
    if (line.in_registers) return LaunchRows(queue, line, SoftmaxRowSource<T, kLog>{x, y});
  }
  return LaunchLines(queue, line, SoftmaxLineSource<T, kLog>{x, y});
}

template <bool kLog, typename T>
int LaunchSoftmaxGradOf(LaunchQueue queue, const LineLaunch& line, const T* dy, const T* y, T* dx) {
  if constexpr (!std::is_same_v<T, double>) {
    if (line.in_registers) {
      return LaunchRows(queue, line, SoftmaxGradSource<T, kLog, float>{dy, y, dx});
    }
  }
  return LaunchLines(queue, line, SoftmaxGradSource<T, kLog, double>{dy, y, dx});
}

}  // namespace

template <typename T>
int LaunchSoftmax(LaunchQueue queue, const LineLaunch& line, bool log, const T* x, T* y) {
  return log ? LaunchSoftmaxOf<true>(queue, line, x, y) : LaunchSoftmaxOf<false>(queue, line, x, y);
}

template <typename T>
int LaunchSoftmaxGrad(LaunchQueue queue, const LineLaunch& line, bool log, const T* dy, const T* y,
                      T* dx) {
  return log ? LaunchSoftmaxGradOf<true>(queue, line, dy, y, dx)
             : LaunchSoftmaxGradOf<false>(queue, line, dy, y, dx);
}

#define WEFT_SOFTMAX(T)                                                           \
  template int LaunchSoftmax(LaunchQueue, const LineLaunch&, bool, const T*, T*); \
  template int LaunchSoftmaxGrad(LaunchQueue, const LineLaunch&, bool, const T*, const T*, T*)
WEFT_SOFTMAX(float);
WEFT_SOFTMAX(double);
WEFT_SOFTMAX(Float16);
WEFT_SOFTMAX(Bfloat16);
#undef WEFT_SOFTMAX

}  // namespace weft::cuda
