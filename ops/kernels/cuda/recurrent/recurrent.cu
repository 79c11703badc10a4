#include "ops/kernels/cuda/recurrent/recurrent_body.h"
#include "ops/kernels/cuda/recurrent/recurrent_grid.h"
#include "ops/kernels/cuda/recurrent/recurrent_launch.h"

namespace weft::cuda {

int LaunchCheckLengths(LaunchQueue queue, const RecurrentSteps& steps, const FaultReport& report) {
  return Launch<kCellThreads>(
      queue, {.blocks = Blocks(steps.batch, kCellThreads), .threads = kCellThreads},
      CheckLengthsBody{steps, report});
}

template <typename T>
int LaunchStart(LaunchQueue queue, const RecurrentSteps& steps, const StartStates<T>& start) {
  return LaunchCells(queue, steps.elements(), StartBody<T>{steps, start});
}

template <typename T>
int LaunchEnd(LaunchQueue queue, const RecurrentSteps& steps, const EndStates<T>& end) {
  return LaunchCells(queue, steps.elements(), EndBody<T>{steps, end});
}

template <typename T>
int LaunchEndGradients(LaunchQueue queue, const RecurrentSteps& steps, const EndGradients<T>& end) {
  return LaunchCells(queue, steps.elements(), EndGradientsBody<T>{steps, end});
}

#define WEFT_RECURRENT(T)                                                              \
  template int LaunchStart(LaunchQueue, const RecurrentSteps&, const StartStates<T>&); \
  template int LaunchEnd(LaunchQueue, const RecurrentSteps&, const EndStates<T>&);     \
  template int LaunchEndGradients(LaunchQueue, const RecurrentSteps&, const EndGradients<T>&)
WEFT_RECURRENT(float);
WEFT_RECURRENT(double);
WEFT_RECURRENT(Float16);
WEFT_RECURRENT(Bfloat16);
#undef WEFT_RECURRENT

}  // namespace weft::cuda
