// The element-wise part of an LSTM step.
#ifndef WEFT_OPS_KERNELS_CPU_LSTM_CELL_H_
#define WEFT_OPS_KERNELS_CPU_LSTM_CELL_H_

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
};

// One sample's step. from_input and from_state are the gates' arguments [4, hidden] in ONNX's order
// (input, output, forget, candidate), to be added; cell and state are updated in place.
void StepLstm(const LstmCell<float>& cell, const float* from_input, const float* from_state,
              float* c, float* h);
void StepLstm(const LstmCell<double>& cell, const double* from_input, const double* from_state,
              double* c, double* h);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_LSTM_CELL_H_
