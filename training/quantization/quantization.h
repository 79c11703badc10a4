// Quantization-aware training: a float model trains with the rounding of the quantized one that it
// is exported as. README.md has the recipe and its sources.
//
// AddQuantization puts ai.weft::FakeQuantizeWeight behind weights and ai.weft::FakeQuantize before
// the first operands of products (ops/defs/quantized/fake_quantize.cc says what they compute). Each
// such operand has a variable, its range. A training step updates it (AddRangeUpdates); evaluations
// read it.
#ifndef WEFT_TRAINING_QUANTIZATION_QUANTIZATION_H_
#define WEFT_TRAINING_QUANTIZATION_QUANTIZATION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "onnx_import/edit/quantized_form.h"
#include "onnx_import/importer.h"
#include "tensor/tensor.h"
#include "training/quantization/products.h"

namespace weft {

// What numbers become.
enum class QuantizationKind : uint8_t {
  kInt8,  // weights int8 per output channel, first operands uint8 with a zero point
  kInt4,  // weights int4 in blocks
  kFp8,   // weights float8e4m3fn per output channel, first operands float8e4m3fn
};

// The options of --qat.
struct QuantizationSpec {
  QuantizationKind kind = QuantizationKind::kInt8;
  // Of kInt4: neighbours along the contracted axis that share a scale.
  int64_t block = 32;
  // Patterns of weights, by any of their names, or of products that stay float.
  std::vector<std::string> skip = {};
};
// "int8", "int4", "fp8".
std::vector<std::string> QuantizationKinds();
// InvalidArgument naming the kinds, or for a block below 2.
absl::StatusOr<QuantizationSpec> ParseQuantization(const std::string& kind, int64_t block,
                                                   std::vector<std::string> skip);

// What AddQuantization did, by names of the graph, which are those of the file.
struct Quantization {
  QuantizationSpec spec;
  struct Weight {
    std::string name;
    DType codes = DType::kInt8;
    bool has_axis = false;  // else one scale for all
    int64_t axis = 0;
    int64_t block = 0;  // 0 = none
  };
  struct Input {
    std::string value;
    std::string range;  // the variable: "VALUE/range", float32 [3]
    DType codes = DType::kUint8;
    std::vector<std::string> readers;  // products, by their outputs
  };
  std::vector<Weight> weights;
  std::vector<Input> inputs;
  int64_t products = 0;
  // Weights of products that stay float, those of --qat-skip first, else in the order of the graph.
  std::vector<FloatWeight> left_float;

  bool empty() const { return weights.empty(); }
  // The operator set that the exported form needs.
  int64_t opset() const { return spec.kind == QuantizationKind::kInt8 ? 13 : 21; }
  // What codes, scales and zero points of the weights take in the file. Bytes.
  int64_t CodeBytes(const Graph& graph) const;
  // "qat    int8: 5 products, 5 weights, 4 inputs; 2 weights stay float: 'fc' (--qat-skip), 'head'
  // (first operand)" and a line break; "" where there is none. Of each reason a few are named.
  std::string ToString() const;
};

// Changes model.graph, whose parameters are variables. Products are Conv, Gemm and MatMul nodes of
// the file's main graph whose second operand is a float32 weight, or one behind Transpose nodes; of
// MatMul one with two axes. A quantized weight is so for all its readers. A weight of which one
// product is skipped stays float. InvalidArgument where there is no such product, with the weights
// of others and why they are none, for a pattern that fits none, and for a model that has quantized
// values already.
absl::StatusOr<Quantization> AddQuantization(ImportedModel& model, const QuantizationSpec& spec);

// For a training step, before it is differentiated: each range becomes 0.95 times itself plus 0.05
// times that of the step's whole batch, whoever computes it. A graph without ranges stays.
absl::Status AddRangeUpdates(Graph& graph);

// The form in which the model is exported, of the values that a job's variables have: takes the
// ranges out of `values`, and the weights too. Weights that `values` lacks are as `graph` has them.
// FailedPrecondition naming a value whose range no step has seen.
absl::StatusOr<QuantizedForm> FreezeQuantization(const Graph& graph,
                                                 const Quantization& quantization,
                                                 std::map<std::string, Tensor>& values);

}  // namespace weft

#endif  // WEFT_TRAINING_QUANTIZATION_QUANTIZATION_H_
