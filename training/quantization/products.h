// Products of an activation and a weight, as quantization sees them.
#ifndef WEFT_TRAINING_QUANTIZATION_PRODUCTS_H_
#define WEFT_TRAINING_QUANTIZATION_PRODUCTS_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_import/importer.h"

namespace weft {

// A Conv, Gemm or MatMul node and the weight that is its second operand.
struct WeightProduct {
  NodeId node;
  ValueId weight;  // of a float32 variable of known shape that the file stores
  // Of the weight, through the Transpose nodes between.
  int channel_axis = 0;            // of the outputs
  int contracted_axis = 0;         // that the product sums over; of Conv that of the input channels
  std::vector<std::string> names;  // of the node, and all of the weight's
};

// A trainable weight that stays float.
struct FloatWeight {
  std::string name;
  std::string reason;  // "first operand"
};

struct WeightProducts {
  std::vector<WeightProduct> products;
  // What products read that cannot be quantized; none that a product above has.
  std::vector<FloatWeight> unfit;
};

// All of the graph, in topological order. Products are of the file's main graph alone: other nodes
// cannot be written.
absl::StatusOr<WeightProducts> WeightProductsOf(const ImportedModel& model);

}  // namespace weft

#endif  // WEFT_TRAINING_QUANTIZATION_PRODUCTS_H_
