#include "executor/program/instruction.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

template <typename T>
void AddLoop(int64_t elements, const void* source, void* target) {
  const T* __restrict from = static_cast<const T*>(source);
  T* __restrict into = static_cast<T*>(target);
  for (int64_t i = 0; i < elements; ++i) into[i] = static_cast<T>(into[i] + from[i]);
}

template <typename T, typename Round>
void AddRounded(int64_t elements, const void* source, void* target, Round round) {
  const T* from = static_cast<const T*>(source);
  T* into = static_cast<T*>(target);
  for (int64_t i = 0; i < elements; ++i) into[i] = round(ToFloat(into[i]) + ToFloat(from[i]));
}

}  // namespace

Instruction NewInstruction(const LoweredInstruction& lowered, int total_micro_batches) {
  Instruction instruction;
  instruction.code = lowered.code;
  instruction.info = lowered.info;
  instruction.micro_batch = lowered.micro_batch;
  instruction.kernel = lowered.kernel;
  instruction.handle = lowered.handle;
  instruction.feed = lowered.feed;
  if (lowered.code == OpCode::kFill) instruction.filled = lowered.outputs[0];
  instruction.first = lowered.first;
  instruction.count = lowered.count;
  instruction.elements = lowered.elements;
  instruction.bytes = lowered.bytes;
  instruction.dtype = lowered.dtype;
  instruction.region = lowered.region;
  instruction.wait_signals = lowered.wait_signals;
  instruction.value_node = lowered.value_node;
  instruction.operands = lowered.operands;
  instruction.results = lowered.results;
  instruction.releases = lowered.releases;
  instruction.inputs.resize(lowered.inputs.size());
  instruction.outputs.resize(lowered.outputs.size());
  if (lowered.code == OpCode::kKernel && lowered.micro_batch >= 0) {
    instruction.context.micro_batch = lowered.micro_batch;
    instruction.context.micro_batches = total_micro_batches;
    instruction.context.first_sample = lowered.first;
    instruction.context.samples = lowered.count;
  }
  return instruction;
}

absl::Status AddInto(DType dtype, int64_t elements, const void* source, void* target) {
  bool done = false;
  DispatchDType(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, Float16>) {
      AddRounded<T>(elements, source, target, ToFloat16);
      done = true;
    } else if constexpr (std::is_same_v<T, Bfloat16>) {
      AddRounded<T>(elements, source, target, ToBfloat16);
      done = true;
    } else if constexpr (!std::is_same_v<T, bool>) {
      AddLoop<T>(elements, source, target);
      done = true;
    }
  });
  if (done) return absl::OkStatus();
  const std::string_view name = DTypeName(dtype);
  return absl::UnimplementedError(
      absl::StrCat("cannot sum values of type ", std::string(name), " over micro-batches"));
}

void CopyRows(const CopyRegion& region, const void* source, void* target) {
  const char* from = static_cast<const char*>(source) + region.source_offset;
  char* to = static_cast<char*>(target) + region.target_offset;
  if (region.bytes == 0) return;
  for (int64_t row = 0; row < region.rows; ++row) {
    std::memcpy(to, from, static_cast<size_t>(region.bytes));
    from += region.source_stride;
    to += region.target_stride;
  }
}

int64_t FindNonFinite(DType dtype, int64_t elements, const void* data) {
  int64_t found = -1;
  DispatchDType(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, Float16> ||
                  std::is_same_v<T, Bfloat16>) {
      const T* values = static_cast<const T*>(data);
      for (int64_t i = 0; i < elements && found < 0; ++i) {
        bool finite;
        if constexpr (std::is_floating_point_v<T>) {
          finite = std::isfinite(values[i]);
        } else {
          finite = std::isfinite(ToFloat(values[i]));
        }
        if (!finite) found = i;
      }
    }
  });
  return found;
}

}  // namespace weft
