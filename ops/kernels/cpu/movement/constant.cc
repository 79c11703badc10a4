// ConstantOfShape and Range.
#include <array>
#include <cstring>
#include <type_traits>

#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "platform/status_macros.h"
#include "tensor/packed.h"

namespace weft::cpu {
namespace {

// The first `width` bytes of `pattern`, over and over.
std::unique_ptr<Kernel> MakeRepeated(std::array<char, 16> pattern, int width, int64_t bytes) {
  return MakeKernel([=](const KernelContext& run) {
    char* const out = Output<char>(run, 0);
    for (int64_t i = 0; i < bytes; ++i) out[i] = pattern[static_cast<size_t>(i % width)];
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConstantOfShape(const PrepareContext& context) {
  const DType dtype = context.OutputDType(0);
  const int bits = DTypeBits(dtype);
  if (bits == 0) return context.Unimplemented("no kernel for this dtype");
  std::array<char, 16> element = {};  // zero, unless attribute value says otherwise
  const Attribute* value = context.attributes().Find("value");
  if (value != nullptr && std::holds_alternative<Tensor>(*value)) {
    std::memcpy(element.data(), std::get<Tensor>(*value).raw_data(), (bits + 7) / 8);
  }
  // As many packed elements as fill whole bytes.
  const int packed = bits >= 8 ? 1 : bits == 6 ? 4 : 8 / bits;
  for (int i = 1; i < packed; ++i) {
    SetPackedElement(element.data(), bits, i, PackedElement(element.data(), bits, 0));
  }
  const int width = packed * bits / 8;
  const int64_t elements = context.OutputShape(0).num_elements();
  if (bits == 6) return MakeRepeated(element, width, DTypeBytes(dtype, elements));
  const int64_t count = bits < 8 ? DTypeBytes(dtype, elements) : elements;
  return MakeKernel([fill = StridedCopy({{count, 0, 1}}, width), element,
                     threads = context.threads()](const KernelContext& run) {
    fill.Run(element.data(), run.outputs[0], threads);
    return absl::OkStatus();
  });
}

// start + i * delta in the element type; integers wrap around.
template <typename T>
T RangeElement(ComputeType<T> start, ComputeType<T> delta, int64_t i) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(start) +
                          static_cast<uint64_t>(i) * static_cast<uint64_t>(delta));
  } else {
    return Store<T>(start + static_cast<ComputeType<T>>(i) * delta);
  }
}

template <typename T>
std::unique_ptr<Kernel> MakeRange(int64_t count) {
  return MakeKernel([count](const KernelContext& run) {
    const ComputeType<T> start = Load(*Input<T>(run, 0));
    const ComputeType<T> delta = Load(*Input<T>(run, 2));
    T* output = Output<T>(run, 0);
    for (int64_t i = 0; i < count; ++i) output[i] = RangeElement<T>(start, delta, i);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRange(const PrepareContext& context) {
  const int64_t count = context.OutputShape(0).num_elements();
  return PrepareByDType(context, context.OutputDType(0), NumericTypes(),
                        [count](auto type) { return MakeRange<decltype(type)>(count); });
}

// Exact in every dtype: the kernels are their own references.
WEFT_REGISTER_KERNEL("", "ConstantOfShape", DeviceKind::kCpu, PrepareConstantOfShape);
WEFT_REGISTER_REFERENCE_KERNEL("", "ConstantOfShape", PrepareConstantOfShape);
WEFT_REGISTER_KERNEL("", "Range", DeviceKind::kCpu, PrepareRange);
WEFT_REGISTER_REFERENCE_KERNEL("", "Range", PrepareRange);

}  // namespace
}  // namespace weft::cpu
