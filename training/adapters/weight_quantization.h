// Weights kept in few bits while adapters train beside them. T. Dettmers et al., "QLoRA: Efficient
// Finetuning of Quantized LLMs", 2023, arXiv:2305.14314; here with whole numbers, as ONNX's
// DequantizeLinear reads them (operator set 21), in place of that paper's NormalFloat.
//
// The recipe is symmetric, without zero points. One scale s stands for the n weights of a group:
//
//   s = max |w| / limit     in float32, then rounded to the weight's type; 1 where that is zero;
//                           rounded down where s limit is no number of the type any more
//   q = w / s               in float32, to the nearest whole number, ties to even, within +-limit
//
//   int8  limit 127; a group is what one output of the node reads (a column of x W)
//   int4  limit 7; a group is `block` neighbours along the axis that the product sums over, the
//         last one perhaps shorter. A convolution's kernel has one group for each output channel
//
// So |w - s q| <= s / 2 but for rounding.
#ifndef WEFT_TRAINING_ADAPTERS_WEIGHT_QUANTIZATION_H_
#define WEFT_TRAINING_ADAPTERS_WEIGHT_QUANTIZATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/tensor.h"

namespace weft {

// The options of --qlora.
struct BaseQuantization {
  DType dtype = DType::kInt8;  // or kInt4
  int64_t block = 64;          // of kInt4
};
// From items: "int8" or "int4", and "block=64". InvalidArgument showing the item and what is
// expected.
absl::StatusOr<BaseQuantization> ParseBaseQuantization(const std::vector<std::string>& items);

// Inputs and attributes of a DequantizeLinear.
struct QuantizedWeight {
  Tensor codes;
  Tensor scales;
  int axis = 0;
  int64_t block = 0;  // 0: one scale for each index of the axis
};

// Quantizes a weight whose axis `output_axis` (0 or 1) is that of the outputs; with two axes the
// other one is summed over. Takes float32, float16 and bfloat16; InvalidArgument for another type,
// an infinity or a NaN.
absl::StatusOr<QuantizedWeight> QuantizeWeight(const Tensor& weight, const BaseQuantization& spec,
                                               int output_axis);

// What DequantizeLinear makes of it, bit for bit: in the type of the scales.
absl::StatusOr<Tensor> DequantizeWeight(const QuantizedWeight& quantized);

}  // namespace weft

#endif  // WEFT_TRAINING_ADAPTERS_WEIGHT_QUANTIZATION_H_
