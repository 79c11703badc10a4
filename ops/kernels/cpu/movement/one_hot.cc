// OneHot.
#include <algorithm>
#include <array>

#include "ops/defs/rules/rules.h"
#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {
namespace {

// The indices are [outer, inner], the output is [outer, depth, inner].
struct OneHotShape {
  int64_t outer = 1;
  int64_t depth = 0;
  int64_t inner = 1;
};

// Indices outside of [-depth, depth) are nowhere on.
template <typename T, typename L>
std::unique_ptr<Kernel> MakeOneHot(const OneHotShape& shape) {
  return MakeKernel([shape](const KernelContext& run) {
    const L* indices = Input<L>(run, 0);
    const T* values = Input<T>(run, 2);
    T* out = Output<T>(run, 0);
    std::fill(out, out + shape.outer * shape.depth * shape.inner, values[0]);
    const double depth = static_cast<double>(shape.depth);
    for (int64_t i = 0; i < shape.outer * shape.inner; ++i) {
      const double given = static_cast<double>(Load(indices[i]));
      if (!(given > -depth - 1 && given < depth)) continue;
      const int64_t whole = static_cast<int64_t>(given);
      const int64_t index = whole < 0 ? whole + shape.depth : whole;
      if (index < 0 || index >= shape.depth) continue;
      out[(i / shape.inner * shape.depth + index) * shape.inner + i % shape.inner] = values[1];
    }
    return absl::OkStatus();
  });
}

template <typename L>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareByWidth(const PrepareContext& context,
                                                       const OneHotShape& shape) {
  switch (DTypeBits(context.InputDType(2))) {
    case 8:
      return MakeOneHot<uint8_t, L>(shape);
    case 16:
      return MakeOneHot<uint16_t, L>(shape);
    case 32:
      return MakeOneHot<uint32_t, L>(shape);
    case 64:
      return MakeOneHot<uint64_t, L>(shape);
    case 128:
      return MakeOneHot<std::array<uint64_t, 2>, L>(shape);
    default:
      return context.Unimplemented("no kernel for elements of this size");
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareOneHot(const PrepareContext& context) {
  const Shape& output = context.OutputShape(0);
  const int axis = ConcreteAxis(context, "axis", -1, output.rank());
  const OneHotShape shape{output.ProductOf(0, axis), output.dim(axis),
                          output.ProductOf(axis + 1, output.rank())};
  return PrepareByDType(context, context.InputDType(0), NumericTypes(), [&](auto index) {
    return PrepareByWidth<decltype(index)>(context, shape);
  });
}

WEFT_REGISTER_KERNEL("", "OneHot", DeviceKind::kCpu, PrepareOneHot);

}  // namespace
}  // namespace weft::cpu
