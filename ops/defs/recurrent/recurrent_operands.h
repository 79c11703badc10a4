// The places of the inputs of RNN, GRU and LSTM.
#ifndef WEFT_OPS_DEFS_RECURRENT_RECURRENT_OPERANDS_H_
#define WEFT_OPS_DEFS_RECURRENT_RECURRENT_OPERANDS_H_

namespace weft {

enum RecurrentInputs { kX, kW, kR, kB, kSequenceLens, kInitialH, kInitialC, kP };

}  // namespace weft

#endif  // WEFT_OPS_DEFS_RECURRENT_RECURRENT_OPERANDS_H_
