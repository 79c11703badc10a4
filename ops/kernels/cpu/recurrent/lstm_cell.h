// The element-wise part of an LSTM step.
#ifndef WEFT_OPS_KERNELS_CPU_RECURRENT_LSTM_CELL_H_
#define WEFT_OPS_KERNELS_CPU_RECURRENT_LSTM_CELL_H_

#include <cstdint>

#include "ops/activation.h"

namespace weft::cpu {

// What all steps of one direction share. S: float or double.
template <typename S>
struct LstmCell {
  int64_t hidden = 0;
  Activation gate;               // f: of the input, output and forget gates
  Activation candidate;          // g
  Activation output;             // h: of the cell state
  float clip = 0;                // of the activations' arguments; 0: none
  bool couple = false;           // the forget gate is one minus the input gate
  const S* peepholes = nullptr;  // [3, hidden] for input, output, forget; may be null

  // Sigmoid, Tanh, Tanh.
  bool standard() const {
    return gate.kind == ActivationKind::kSigmoid && candidate.kind == ActivationKind::kTanh &&
           output.kind == ActivationKind::kTanh;
  }
  // What is kept of the gates for the gradient: what they became, or their arguments.
  bool keeps_activated() const { return standard() && clip <= 0; }
};

// One sample's step. from_input and from_state are the gates' arguments [4, hidden] in ONNX's order
// (input, output, forget, candidate), to be added; cell and state are updated in place. `kept`
// [4, hidden], when not null, gets what the gradient needs of the gates.
void StepLstm(const LstmCell<float>& cell, const float* from_input, const float* from_state,
              float* c, float* h, float* kept);
void StepLstm(const LstmCell<double>& cell, const double* from_input, const double* from_state,
              double* c, double* h, double* kept);

// The same step backward: from what was kept of the gates, the cell state after it and before it
// (null: zeros) and the gradient of the state after it, the gradients of the gates' arguments.
// `dc` is the gradient of the cell state after the step and becomes that of the one before it.
void StepLstmBack(const LstmCell<float>& cell, const float* kept, const float* c,
                  const float* previous_c, const float* dh, float* dc, float* dgates);
void StepLstmBack(const LstmCell<double>& cell, const double* kept, const double* c,
                  const double* previous_c, const double* dh, double* dc, double* dgates);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_RECURRENT_LSTM_CELL_H_
