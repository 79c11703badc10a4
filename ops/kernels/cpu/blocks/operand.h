// Typed access to the operands of a kernel, dispatch over dtypes, and arithmetic on 16-bit floats.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_OPERAND_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_OPERAND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "tensor/dtype.h"

namespace weft::cpu {

template <typename T>
const T* Input(const KernelContext& context, int i) {
  return static_cast<const T*>(context.inputs[i]);
}

template <typename T>
T* Output(const KernelContext& context, int i) {
  return static_cast<T*>(context.outputs[i]);
}

// A list of element types for PrepareByDType.
template <typename... Ts>
struct TypeList {};
using FloatTypes = TypeList<float, double, Float16, Bfloat16>;
using NumericTypes = TypeList<float, double, Float16, Bfloat16, int8_t, int16_t, int32_t, int64_t,
                              uint8_t, uint16_t, uint32_t, uint64_t>;
using RealTypes = TypeList<float, double, Float16, Bfloat16, int8_t, int16_t, int32_t, int64_t,
                           uint8_t, uint16_t, uint32_t, uint64_t, bool>;
using IndexTypes = TypeList<int32_t, int64_t>;

// Returns prepare(T{}) for the type of the list that `dtype` names; Unimplemented for others.
// `prepare` returns absl::StatusOr<std::unique_ptr<Kernel>>.
template <typename... Ts, typename Fn>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareByDType(const PrepareContext& context, DType dtype,
                                                       TypeList<Ts...>, Fn&& prepare) {
  absl::StatusOr<std::unique_ptr<Kernel>> kernel = nullptr;
  const bool found =
      ((dtype == DTypeOf<Ts>::value ? (kernel = prepare(Ts{}), true) : false) || ...);
  if (found) return kernel;
  return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(dtype))));
}

// The type in which arithmetic on elements of type T is done.
template <typename T>
struct ComputeTypeOf {
  using Type = T;
};
template <>
struct ComputeTypeOf<Float16> {
  using Type = float;
};
template <>
struct ComputeTypeOf<Bfloat16> {
  using Type = float;
};
template <typename T>
using ComputeType = typename ComputeTypeOf<T>::Type;

template <typename T>
inline ComputeType<T> Load(T value) {
  return value;
}
inline float Load(Float16 value) { return ToFloat(value); }
inline float Load(Bfloat16 value) { return ToFloat(value); }

// The element of type T nearest to a computed value.
template <typename T>
inline T Store(ComputeType<T> value) {
  return value;
}
template <>
inline Float16 Store<Float16>(float value) {
  return ToFloat16(value);
}
template <>
inline Bfloat16 Store<Bfloat16>(float value) {
  return ToBfloat16(value);
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_OPERAND_H_
