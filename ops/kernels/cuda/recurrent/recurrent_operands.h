// The places of the operands of recurrent nodes and of their gradients (ops/defs/recurrent).
#ifndef WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_OPERANDS_H_
#define WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_OPERANDS_H_

namespace weft::cuda {

enum RecurrentInput {
  kRecurrentX,
  kRecurrentW,
  kRecurrentR,
  kRecurrentB,
  kRecurrentLengths,
  kRecurrentInitialH,
  kRecurrentInitialC,
  kRecurrentP,
};

// RNN and GRU have no cells: their gates are output 2.
enum RecurrentOutput {
  kRecurrentY,
  kRecurrentFinalH,
  kRecurrentFinalC,
  kRecurrentGates,
  kRecurrentCells,
};
inline constexpr int kRecurrentGatesWithoutCells = 2;

enum RecurrentGradInput {
  kGradDy,
  kGradFinalH,
  kGradFinalC,
  kGradR,
  kGradP,
  kGradLengths,
  kGradInitialH,
  kGradInitialC,
  kGradY,
  kGradGates,
  kGradCells,
};

// The last two are other ones of LSTM and GRU.
enum RecurrentGradOutput {
  kGradOfGates,
  kGradPreviousH,
  kGradOfInitialH,
  kGradPreviousC,
  kGradOfInitialC,
};
inline constexpr int kGradFromState = 3;
inline constexpr int kGradSeen = 4;

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_OPERANDS_H_
