// Models as exporters write them, with tensors of equal value merged.
#ifndef WEFT_ONNX_IMPORT_TESTING_MERGED_MODELS_H_
#define WEFT_ONNX_IMPORT_TESTING_MERGED_MODELS_H_

#include <string>

namespace weft::testing {

// y [N,3] = BatchNormalization of x [N,3], as TorchScript's exporter writes a fresh one: bn_weight
// ones, bn_bias zeros, and bn_running_mean and bn_running_var Identity nodes over these. Momentum
// 0.75, epsilon 1e-5. In training mode, if asked for, with outputs for the running statistics.
std::string MergedNormalizationBytes(bool training_mode);

// scores [N,32] of ids [N]: an embedding `wte` [32,40] of distinct values, a head
// `onnx::MatMul_9` that holds the same transposed, and a bias between them.
std::string CopiedHeadBytes();

}  // namespace weft::testing

#endif  // WEFT_ONNX_IMPORT_TESTING_MERGED_MODELS_H_
