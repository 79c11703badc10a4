// What is made of sizes, attributes and single numbers: Shape, Size, ConstantOfShape, Range,
// EyeLike, OneHot.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <variant>

#include "ops/defs/rules/rules.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/strided_copy.h"
#include "ops/kernels/cuda/movement/movement_launch.h"
#include "platform/status_macros.h"
#include "tensor/packed.h"

namespace weft::cuda {
namespace {

static_assert(kMaxRank <= kMaxWrittenInts);

std::unique_ptr<Kernel> WriteInts(absl::Span<const int64_t> values) {
  IntsCall call;
  call.count = static_cast<int>(values.size());
  std::copy(values.begin(), values.end(), call.values);
  return MakeKernel([call](const KernelContext& run) mutable {
    call.to = Out<int64_t>(run, 0);
    return LaunchStatus(LaunchInts(QueueOf(run), call), "Shape");
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareShape(const PrepareContext& context) {
  const Shape& input = context.InputShape(0);
  int64_t start = context.attributes().Int("start", 0);
  if (start < 0) start += input.rank();
  start = std::clamp<int64_t>(start, 0, input.rank());
  // The shape function counted the elements up to `end`.
  const int64_t count = context.OutputShape(0).num_elements();
  return WriteInts(input.dims().subspan(static_cast<size_t>(start), static_cast<size_t>(count)));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSize(const PrepareContext& context) {
  return WriteInts({context.InputShape(0).num_elements()});
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConstantOfShape(const PrepareContext& context) {
  const DType dtype = context.OutputDType(0);
  const int bits = DTypeBits(dtype);
  if (bits == 0) return context.Unimplemented("no kernel for this dtype on CUDA devices");
  if (128 % bits != 0) {
    return context.Unimplemented("elements of 6 bits are not filled in on CUDA devices");
  }
  std::array<char, 16> pattern = {};  // zero, unless attribute value says otherwise
  const Attribute* const value = context.attributes().Find("value");
  if (value != nullptr && std::holds_alternative<Tensor>(*value)) {
    std::memcpy(pattern.data(), std::get<Tensor>(*value).raw_data(),
                static_cast<size_t>((bits + 7) / 8));
  }
  if (bits < 8) {
    for (int i = 1; i < 8 / bits; ++i) {
      SetPackedElement(pattern.data(), bits, i, PackedElement(pattern.data(), bits, 0));
    }
  }
  const size_t width = static_cast<size_t>(std::max(bits / 8, 1));
  for (size_t i = width; i < pattern.size(); ++i) pattern[i] = pattern[i - width];
  const auto bytes = static_cast<int64_t>(DTypeBytes(dtype, context.OutputShape(0).num_elements()));
  return MakeKernel([pattern, bytes](const KernelContext& run) {
    return LaunchStatus(LaunchFill(QueueOf(run), pattern.data(), run.outputs[0], bytes),
                        "ConstantOfShape");
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRange(const PrepareContext& context) {
  const int64_t count = context.OutputShape(0).num_elements();
  const DType dtype = context.OutputDType(0);
  return PrepareByElement(
      context, dtype, NumberElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          return LaunchStatus(
              LaunchRange(QueueOf(run), dtype, run.inputs[0], run.inputs[2], run.outputs[0], count),
              "Range");
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareEyeLike(const PrepareContext& context) {
  const int64_t rows = context.OutputShape(0).dim(0);
  const int64_t columns = context.OutputShape(0).dim(1);
  const int64_t k = std::clamp(context.attributes().Int("k", 0), -rows, columns);
  const DType dtype = context.OutputDType(0);
  return PrepareByElement(
      context, dtype, RealElements(), [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelContext& run) {
          return LaunchStatus(LaunchEye(QueueOf(run), dtype, run.outputs[0], rows, columns, k),
                              "EyeLike");
        });
      });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareOneHot(const PrepareContext& context) {
  const Shape& output = context.OutputShape(0);
  const int axis = ConcreteAxis(context, "axis", -1, output.rank());
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, context.InputDType(2)));
  OneHotCall call;
  call.index_dtype = context.InputDType(0);
  call.count = output.num_elements();
  call.depth = output.dim(axis);
  call.inner = output.ProductOf(axis + 1, output.rank());
  return PrepareByElement(context, call.index_dtype, NumberElements(),
                          [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return MakeKernel([=](const KernelContext& run) mutable {
                              call.indices = run.inputs[0];
                              call.values = run.inputs[2];
                              call.y = run.outputs[0];
                              return LaunchStatus(LaunchOneHot(QueueOf(run), bytes, call),
                                                  "OneHot");
                            });
                          });
}

WEFT_REGISTER_KERNEL("", "Shape", DeviceKind::kCuda, PrepareShape);
WEFT_REGISTER_KERNEL("", "Size", DeviceKind::kCuda, PrepareSize);
WEFT_REGISTER_KERNEL("", "ConstantOfShape", DeviceKind::kCuda, PrepareConstantOfShape);
WEFT_REGISTER_KERNEL("", "Range", DeviceKind::kCuda, PrepareRange);
WEFT_REGISTER_KERNEL("", "EyeLike", DeviceKind::kCuda, PrepareEyeLike);
WEFT_REGISTER_KERNEL("", "OneHot", DeviceKind::kCuda, PrepareOneHot);

}  // namespace
}  // namespace weft::cuda
