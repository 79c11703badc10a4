// Arbitrary bytes as a safetensors file: its header, and adapters in it. What is read can be laid
// out again.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>

#include "executor/variables/safetensors.h"
#include "training/adapters/peft_file.h"

namespace weft {
namespace {

void TakeSafetensors(std::span<const std::byte> bytes) {
  const auto layout = ParseSafetensors(bytes, "fuzzed.safetensors");
  if (!layout.ok()) return;
  for (const SafetensorsEntry& entry : layout->tensors) {
    const bool is_inside = entry.offset >= 0 && entry.bytes() >= 0 &&
                           entry.offset + entry.bytes() <= static_cast<int64_t>(bytes.size());
    if (is_inside) continue;
    std::fprintf(stderr, "a tensor lies outside the file\n");
    std::abort();
  }
  (void)LayOutSafetensors(layout->tensors, layout->metadata);
  (void)ParsePeft(bytes, std::nullopt, "fuzzed.safetensors");
  (void)ParsePeft(bytes, R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6})", "fuzzed.safetensors");
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::TakeSafetensors(std::as_bytes(std::span(data, size)));
  return 0;
}
