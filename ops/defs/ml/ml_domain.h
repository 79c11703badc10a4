// What all ops of ai.onnx.ml share.
#ifndef WEFT_OPS_DEFS_ML_ML_DOMAIN_H_
#define WEFT_OPS_DEFS_ML_ML_DOMAIN_H_

#include <initializer_list>

#include "graph/op_schema.h"

namespace weft {

inline constexpr char kMlDomain[] = "ai.onnx.ml";
// Of rows of features.
inline constexpr std::initializer_list<DType> kMlRowTypes = {DType::kFloat32, DType::kFloat64,
                                                             DType::kInt64, DType::kInt32};

}  // namespace weft

#endif  // WEFT_OPS_DEFS_ML_ML_DOMAIN_H_
