// The operators that generated kernels know.
#ifndef WEFT_OPS_KERNELS_CUDA_FUSION_REGION_OPS_H_
#define WEFT_OPS_KERNELS_CUDA_FUSION_REGION_OPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "ops/fusion/fusion_rules.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// The name of an element type in the text; null for types that the text does not know.
const char* ElementText(DType dtype);
// The type that its elements are computed in.
const char* ComputeText(DType dtype);

// A number of a type as the text writes it: all its bits. REQUIRES: a finite one for floats.
std::string LiteralText(DType dtype, double value);

// The expression of an elementwise node: `operands` are names of variables of the compute types of
// its inputs, empty for omitted ones; the result is what Narrow takes for the type of output 0.
// Nullopt for operators, types and attributes that are not in the table.
std::optional<std::string> ExpressionOf(const Graph& graph, const Node& node,
                                        const std::vector<std::string>& operands);

enum class RegionFold : uint8_t { kSum, kMean, kLargest };
// What a reduction along the last axes folds, to one element for each row. Nullopt for operators,
// types and axes that a region does not end with.
struct RowFold {
  RegionFold fold = RegionFold::kSum;
  int64_t rows = 1;
  int64_t columns = 1;
};
std::optional<RowFold> RowFoldOf(const Graph& graph, const Node& node);

// The rules of what GPUs fuse.
FusedRole RoleOnGpu(const Graph& graph, const Node& node);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_FUSION_REGION_OPS_H_
