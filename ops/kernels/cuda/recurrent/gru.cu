#include "ops/kernels/cuda/recurrent/gru_body.h"
#include "ops/kernels/cuda/recurrent/recurrent_grid.h"
#include "ops/kernels/cuda/recurrent/recurrent_launch.h"

namespace weft::cuda {

template <typename T>
int LaunchRnnStep(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                  const RnnStep<T>& rnn) {
  return LaunchCells(queue, steps.elements(), RnnStepBody<T>{steps, step, rnn});
}

template <typename T>
int LaunchRnnGradStep(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                      const RnnGradStep<T>& rnn) {
  return LaunchCells(queue, steps.elements(), RnnGradStepBody<T>{steps, step, rnn});
}

template <typename T>
int LaunchGruReset(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                   const GruStep<T>& gru) {
  return LaunchCells(queue, steps.elements(), GruResetBody<T>{steps, step, gru});
}

template <typename T>
int LaunchGruStep(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                  const GruStep<T>& gru) {
  return LaunchCells(queue, steps.elements(), GruStepBody<T>{steps, step, gru});
}

template <typename T>
int LaunchGruGradStep(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                      const GruGradStep<T>& gru) {
  return LaunchCells(queue, steps.elements(), GruGradStepBody<T>{steps, step, gru});
}

template <typename T>
int LaunchGruGradReset(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                       const GruGradStep<T>& gru) {
  return LaunchCells(queue, steps.elements(), GruGradResetBody<T>{steps, step, gru});
}

#define WEFT_GRU(T)                                                                            \
  template int LaunchRnnStep(LaunchQueue, const RecurrentSteps&, int64_t, const RnnStep<T>&);  \
  template int LaunchRnnGradStep(LaunchQueue, const RecurrentSteps&, int64_t,                  \
                                 const RnnGradStep<T>&);                                       \
  template int LaunchGruReset(LaunchQueue, const RecurrentSteps&, int64_t, const GruStep<T>&); \
  template int LaunchGruStep(LaunchQueue, const RecurrentSteps&, int64_t, const GruStep<T>&);  \
  template int LaunchGruGradStep(LaunchQueue, const RecurrentSteps&, int64_t,                  \
                                 const GruGradStep<T>&);                                       \
  template int LaunchGruGradReset(LaunchQueue, const RecurrentSteps&, int64_t,                 \
                                  const GruGradStep<T>&)
WEFT_GRU(float);
WEFT_GRU(double);
WEFT_GRU(Float16);
WEFT_GRU(Bfloat16);
#undef WEFT_GRU

}  // namespace weft::cuda
