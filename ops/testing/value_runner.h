// Runs one op on values, as a node of a graph of its own: for tests of what runs at run time.
#ifndef WEFT_OPS_TESTING_VALUE_RUNNER_H_
#define WEFT_OPS_TESTING_VALUE_RUNNER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attribute.h"
#include "tensor/value.h"

namespace weft::testing {

// The outputs of an op ("NonZero", "ai.onnx.ml::LabelEncoder"), as many as wanted. An invalid
// tensor is an omitted input.
absl::StatusOr<std::vector<Value>> RunOp(const std::string& op, std::vector<Value> inputs,
                                         Attributes attributes = {}, int outputs = 1);

// The text of output `output`, or of the error.
std::string ResultText(const std::string& op, std::vector<Value> inputs, Attributes attributes = {},
                       int output = 0);

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_VALUE_RUNNER_H_
