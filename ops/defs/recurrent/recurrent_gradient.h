// The gradients of RNN, GRU and LSTM.
#ifndef WEFT_OPS_DEFS_RECURRENT_RECURRENT_GRADIENT_H_
#define WEFT_OPS_DEFS_RECURRENT_RECURRENT_GRADIENT_H_

#include "graph/op_schema.h"

namespace weft {

// Of RNN (one gate), GRU (three) and LSTM (four).
GradientFn RecurrentGradient(int64_t gate_count);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_RECURRENT_RECURRENT_GRADIENT_H_
