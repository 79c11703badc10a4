// The weights of adapters, kept in few bits (weight_quantization.h).
#ifndef WEFT_TRAINING_ADAPTERS_QUANTIZED_BASES_H_
#define WEFT_TRAINING_ADAPTERS_QUANTIZED_BASES_H_

#include <vector>

#include "absl/status/status.h"
#include "graph/graph.h"
#include "training/adapters/lora.h"
#include "training/adapters/weight_quantization.h"

namespace weft {

// Replaces the weight of each adapter by variables "WEIGHT/codes" and "WEIGHT/scales", which do not
// train, and a DequantizeLinear that stands before the first node that reads it; its output has the
// weight's name. The adapters say so (LoraAdapter::quantized). Errors as QuantizeWeight's, with the
// weight's name.
absl::Status QuantizeBases(Graph& graph, const BaseQuantization& spec,
                           std::vector<LoraAdapter>& adapters);

}  // namespace weft

#endif  // WEFT_TRAINING_ADAPTERS_QUANTIZED_BASES_H_
