// Arbitrary bytes as a model, a wire graph and a value file.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "onnx_import/testing/mutate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::testing::ExerciseModel({reinterpret_cast<const char*>(data), size});
  return 0;
}
