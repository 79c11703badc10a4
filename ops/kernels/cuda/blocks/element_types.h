// Dispatch over the element types of a node, for factories.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_ELEMENT_TYPES_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_ELEMENT_TYPES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// A list of element types.
template <typename... Ts>
struct Elements {};
using FloatElements = Elements<float, double, Float16, Bfloat16>;
using WholeElements =
    Elements<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;
using NumberElements = Elements<float, double, Float16, Bfloat16, int8_t, int16_t, int32_t, int64_t,
                                uint8_t, uint16_t, uint32_t, uint64_t>;
using RealElements = Elements<float, double, Float16, Bfloat16, int8_t, int16_t, int32_t, int64_t,
                              uint8_t, uint16_t, uint32_t, uint64_t, bool>;

// Returns prepare(T{}) for the type of the list that `dtype` names; Unimplemented for others.
// `prepare` returns absl::StatusOr<std::unique_ptr<Kernel>>.
template <typename... Ts, typename Fn>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareByElement(const PrepareContext& context, DType dtype,
                                                         Elements<Ts...>, Fn&& prepare) {
  absl::StatusOr<std::unique_ptr<Kernel>> kernel = nullptr;
  const bool found =
      ((dtype == DTypeOf<Ts>::value ? (kernel = prepare(Ts{}), true) : false) || ...);
  if (found) return kernel;
  return context.Unimplemented(
      absl::StrCat("no kernel for ", std::string(DTypeName(dtype)), " on CUDA devices"));
}

template <typename T>
const T* In(const KernelContext& run, int i) {
  return static_cast<const T*>(run.inputs[i]);
}
template <typename T>
T* Out(const KernelContext& run, int i) {
  return static_cast<T*>(run.outputs[i]);
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_ELEMENT_TYPES_H_
