// What recurrent layers launch besides products of matrices. T: float, double, Float16, Bfloat16;
// S is Compute<T>. Each function returns 0, or CUDA's error number.
//
// A state is [directions, batch, hidden], whatever the layout of the operands; so are its
// gradients. Gates are beside each other in a row: [.., gates * hidden]. A step is that of all
// samples in all directions; its time is another in each.
#ifndef WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/divisor.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/recurrent/cell_function.h"

namespace weft::cuda {

inline constexpr int kMaxDirections = 2;

// Sizes, and where elements lie in the operands. REQUIRES: elements() < 2^31.
struct RecurrentSteps {
  int64_t time = 0;
  int64_t batch = 0;
  int64_t hidden = 0;
  int32_t directions = 1;
  int32_t gates = 1;
  int32_t batch_first = 0;
  int32_t reverse = 0;               // direction 0 begins at the end; direction 1 always does
  const int32_t* lengths = nullptr;  // steps of each sample; null: all
  FastDivisor<int32_t> by_hidden;
  FastDivisor<int32_t> by_batch;

  WEFT_GPU int64_t elements() const { return directions * batch * hidden; }
  WEFT_GPU int64_t rows() const { return time * batch; }
  // Row of X, and of what is kept of a direction.
  WEFT_GPU int64_t Row(int64_t t, int64_t b) const {
    return batch_first != 0 ? b * time + t : t * batch + b;
  }
  // The first element of Y, and of an operand that is laid out like an initial state.
  WEFT_GPU int64_t YOffset(int64_t t, int64_t d, int64_t b) const {
    return (batch_first != 0 ? Row(t, b) * directions + d : (t * directions + d) * batch + b) *
           hidden;
  }
  WEFT_GPU int64_t StateOffset(int64_t d, int64_t b) const {
    return (batch_first != 0 ? b * directions + d : d * batch + b) * hidden;
  }
};

// Reports lengths that are not in [0, time]; other launches take the nearest that is.
int LaunchCheckLengths(LaunchQueue queue, const RecurrentSteps& steps, const FaultReport& report);

// The states before the first step: the initial ones, or zeros where these are null. `h` is the
// operand of products. `wide_h` has the state of a GRU where T is shorter than S; it may be null.
// `c` is null where there are no cells.
template <typename T>
struct StartStates {
  const T* initial_h = nullptr;
  const T* initial_c = nullptr;
  T* h = nullptr;
  Compute<T>* wide_h = nullptr;
  Compute<T>* c = nullptr;
};
template <typename T>
int LaunchStart(LaunchQueue queue, const RecurrentSteps& steps, const StartStates<T>& start);

// The states after the last step, in the layout of the outputs; null ones are not wanted.
template <typename T>
struct EndStates {
  const T* h = nullptr;
  const Compute<T>* c = nullptr;
  T* final_h = nullptr;
  T* final_c = nullptr;
};
template <typename T>
int LaunchEnd(LaunchQueue queue, const RecurrentSteps& steps, const EndStates<T>& end);

// The same of a gradient: initial = what has come through the steps, or the gradient of the final
// state for samples without any.
template <typename T>
struct EndGradients {
  const Compute<T>* through_r = nullptr;
  const Compute<T>* past = nullptr;  // added to it; null: nothing
  const Compute<T>* dc = nullptr;
  const T* final_h = nullptr;  // null: zeros
  const T* final_c = nullptr;
  T* initial_h = nullptr;  // null: not wanted
  T* initial_c = nullptr;
};
template <typename T>
int LaunchEndGradients(LaunchQueue queue, const RecurrentSteps& steps, const EndGradients<T>& end);

// What all cells read and write in a step. Rows of samples that have ended are made zero.
template <typename T>
struct CellOperands {
  const Compute<T>* from_input = nullptr;  // [rows of X, directions, gates * hidden]; null: zeros
  const Compute<T>* from_state = nullptr;  // [directions, batch, gates through R * hidden]
  const T* bias = nullptr;                 // [directions, 2, gates * hidden]; null: zeros
  T* h = nullptr;
  T* y = nullptr;      // null: not wanted
  T* gates = nullptr;  // kept for the gradient, [directions, rows of X, ..]; null: not wanted
  float clip = 0;      // of the gates' arguments; 0: none
};

// Gates in the order input, output, forget, candidate. c = f c' + i g, h = o output(c): ONNX's
// description of LSTM.
template <typename T>
struct LstmStep {
  CellOperands<T> cell;
  Compute<T>* c = nullptr;
  const T* peepholes = nullptr;  // [directions, 3, hidden] of input, output, forget; null: none
  T* cells = nullptr;            // kept; null: not wanted
  int32_t couple = 0;            // the forget gate is one minus the input gate
  CellActivation gate[kMaxDirections];
  CellActivation candidate[kMaxDirections];
  CellActivation output[kMaxDirections];
};
template <typename T>
int LaunchLstmStep(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                   const LstmStep<T>& lstm);

// h = activation(argument).
template <typename T>
struct RnnStep {
  CellOperands<T> cell;
  CellActivation activation[kMaxDirections];
};
template <typename T>
int LaunchRnnStep(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                  const RnnStep<T>& rnn);

// Gates in the order update z, reset r, candidate n. h = (1 - z) n + z h'. The candidate sees the
// state as R (r h'), which takes LaunchGruReset and a product before LaunchGruStep, or, linear
// before reset, as r (R h' + bias).
template <typename T>
struct GruStep {
  CellOperands<T> cell;  // from_state: of z and r; linear: of all three
  Compute<T>* wide_h = nullptr;
  T* seen = nullptr;                      // r h', a state
  const Compute<T>* candidate = nullptr;  // R (r h'), a state
  int32_t linear = 0;
  CellActivation gate[kMaxDirections];
  CellActivation hidden[kMaxDirections];
};
template <typename T>
int LaunchGruReset(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                   const GruStep<T>& gru);
template <typename T>
int LaunchGruStep(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                  const GruStep<T>& gru);

// What all cells read and write in a step of a gradient. Rows of samples that have ended, or not
// begun, are made zero.
template <typename T>
struct GradOperands {
  const T* dy = nullptr;                  // null: zeros
  const T* final_h = nullptr;             // of the final state; null: zeros
  const Compute<T>* through_r = nullptr;  // of the state after this step, by way of the next
  const T* initial_h = nullptr;           // null: zeros
  const T* y = nullptr;                   // what the forward op gave
  const T* gates = nullptr;               // what it kept
  T* dgates = nullptr;                    // [directions, rows of X, gates * hidden]
  T* previous_h = nullptr;                // [directions, rows of X, hidden]; null: not wanted
  T* operand = nullptr;  // [directions, batch, gates through R * hidden], for the product with R
  float clip = 0;
};

template <typename T>
struct LstmGradStep {
  GradOperands<T> cell;
  const T* final_c = nullptr;    // gradient of the final cells; null: zeros
  const T* initial_c = nullptr;  // null: zeros
  const T* cells = nullptr;
  const T* peepholes = nullptr;
  Compute<T>* dc = nullptr;  // of the cells after the step, then of those before it
  T* previous_c = nullptr;   // null: not wanted
  int32_t couple = 0;
  CellActivation gate[kMaxDirections];
  CellActivation candidate[kMaxDirections];
  CellActivation output[kMaxDirections];
};
template <typename T>
int LaunchLstmGradStep(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                       const LstmGradStep<T>& lstm);

template <typename T>
struct RnnGradStep {
  GradOperands<T> cell;
  CellActivation activation[kMaxDirections];
};
template <typename T>
int LaunchRnnGradStep(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                      const RnnGradStep<T>& rnn);

// LaunchGruGradStep, then the product of `candidate` and R's rows of the candidate, then
// LaunchGruGradReset, then that of cell.operand (z and r). Linear before reset: the first alone,
// and cell.operand has three gates.
template <typename T>
struct GruGradStep {
  GradOperands<T> cell;
  Compute<T>* past = nullptr;         // of the state before the step, past the gates
  T* candidate = nullptr;             // of the candidate's argument, a state
  const Compute<T>* dseen = nullptr;  // of what the candidate saw, a state
  T* from_state = nullptr;            // [directions, rows of X, 3 * hidden]; null: not wanted
  T* seen = nullptr;                  // [directions, rows of X, hidden]; null: not wanted
  int32_t linear = 0;
  CellActivation gate[kMaxDirections];
  CellActivation hidden[kMaxDirections];
};
template <typename T>
int LaunchGruGradStep(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                      const GruGradStep<T>& gru);
template <typename T>
int LaunchGruGradReset(LaunchQueue queue, const RecurrentSteps& steps, int64_t step,
                       const GruGradStep<T>& gru);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_LAUNCH_H_
