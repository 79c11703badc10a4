#include "executor/program/memory_operations.h"

#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

absl::Status SumOnHost(void* argument, Stream&) {
  const auto& sum = *static_cast<const SumArguments*>(argument);
  return AddInto(sum.dtype, sum.elements, sum.from, sum.into);
}

absl::Status CopyRowsOnHost(void* argument, Stream&) {
  const auto& copy = *static_cast<const RowsArguments*>(argument);
  CopyRows(copy.region, copy.from, copy.into);
  return absl::OkStatus();
}

absl::Status FindNonFiniteOnHost(void* argument, Stream&) {
  const auto& search = *static_cast<const FiniteArguments*>(argument);
  const int64_t found = FindNonFinite(search.dtype, search.elements, search.data);
  *search.first = found < 0 ? FiniteArguments::kAllFinite : found;
  return absl::OkStatus();
}

constexpr MemoryWork kHostMemoryWork = {SumOnHost, CopyRowsOnHost, FindNonFiniteOnHost};

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

absl::StatusOr<const MemoryWork*> MemoryWorkOf(const Device& device) {
  if (device.info().runs_host_work) return &kHostMemoryWork;
  const MemoryWork* const work = FindMemoryWork(device.info().kind);
  if (work != nullptr) return work;
  return absl::UnimplementedError(absl::StrCat(
      "this build has no kernels for ", device.info().name,
      ": nothing could be summed or copied there; use one that was made with --config=cuda"));
}

}  // namespace weft
