#include "ops/kernels/cuda/recurrent/lstm_body.h"
#include "ops/kernels/cuda/recurrent/recurrent_grid.h"
#include "ops/kernels/cuda/recurrent/recurrent_launch.h"

namespace weft::cuda {

template <typename T>
int LaunchLstmStep(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                   const LstmStep<T>& lstm) {
  return LaunchCells(queue, steps.elements(), LstmStepBody<T>{steps, step, lstm});
}

template <typename T>
int LaunchLstmGradStep(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                       const LstmGradStep<T>& lstm) {
  return LaunchCells(queue, steps.elements(), LstmGradStepBody<T>{steps, step, lstm});
}

#define WEFT_LSTM(T)                                                                            \
  template int LaunchLstmStep(LaunchQueue, const RecurrentSteps&, int64_t, const LstmStep<T>&); \
  template int LaunchLstmGradStep(LaunchQueue, const RecurrentSteps&, int64_t,                  \
                                  const LstmGradStep<T>&)
WEFT_LSTM(float);
WEFT_LSTM(double);
WEFT_LSTM(Float16);
WEFT_LSTM(Bfloat16);
#undef WEFT_LSTM

}  // namespace weft::cuda
