// A model that brings its own training along.
#ifndef WEFT_ONNX_IMPORT_TESTING_TRAINING_MODELS_H_
#define WEFT_ONNX_IMPORT_TESTING_TRAINING_MODELS_H_

#include <string>

#include "onnx_import/codec/wire.pb.h"

namespace weft::testing {

// Linear regression: y [N,1] = x [N,2] w + b. Its algorithm takes targets t [N,1], minimizes the
// mean of (y - t)^2, "error", by a step of rate 0.1, with momentum 0.5 in v for w and none for b,
// and counts the steps in the int64 scalar `steps`. Its initialization sets w to {0.5, -0.25} and
// `steps` to 0. In the file w is {1, 2}, b {0.5}, v {0, 0} and `steps` 3.
onnx::ModelProto RegressionThatTrainsItself();

// The same as a file.
std::string RegressionThatTrainsItselfBytes();

}  // namespace weft::testing

#endif  // WEFT_ONNX_IMPORT_TESTING_TRAINING_MODELS_H_
