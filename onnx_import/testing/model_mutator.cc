// How libFuzzer changes a model: mostly by fields, so that the encoding stays whole and what lies
// behind the parser is reached; else by bytes.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/testing/mutate.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  std::mt19937 random(seed);
  weft::onnx::ModelProto model;
  if (random() % 8 == 0 || !model.ParsePartialFromArray(data, static_cast<int>(size))) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  weft::testing::MutateFields(model, random);
  const std::string bytes = model.SerializePartialAsString();
  if (bytes.empty() || bytes.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}
