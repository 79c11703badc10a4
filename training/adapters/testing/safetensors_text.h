// Files of safetensors put together from texts, good or bad: independent of what writes ours.
#ifndef WEFT_TRAINING_ADAPTERS_TESTING_SAFETENSORS_TEXT_H_
#define WEFT_TRAINING_ADAPTERS_TESTING_SAFETENSORS_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace weft::testing {

// The length of `header`, little-endian in eight bytes, the header, the data.
inline std::string SafetensorsText(const std::string& header, const std::string& data) {
  std::string text;
  for (int i = 0; i < 8; ++i) {
    text.push_back(static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i) & 0xff));
  }
  return text + header + data;
}

// float32 as bytes.
inline std::string FloatBytes(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace weft::testing

#endif  // WEFT_TRAINING_ADAPTERS_TESTING_SAFETENSORS_TEXT_H_
