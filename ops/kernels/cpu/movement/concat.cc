// Concat and Split: one copy per part.
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// Where the parts of a tensor lie when it is cut along one axis: for each of `outer` rows, `part`
// times `inner` elements out of `whole` times `inner`.
struct Cut {
  int64_t outer = 1;
  int64_t whole = 0;
  int64_t inner = 1;
  int width = 1;
};

absl::StatusOr<Cut> CutOf(const PrepareContext& context, const Shape& whole, DType dtype) {
  Cut cut;
  WEFT_ASSIGN_OR_RETURN(cut.width, ElementBytes(context, dtype));
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(context.attributes().Int("axis", 0), whole.rank()));
  cut.outer = whole.ProductOf(0, axis);
  cut.whole = whole.dim(axis);
  cut.inner = whole.ProductOf(axis + 1, whole.rank());
  return cut;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareConcat(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const Cut cut,
                        CutOf(context, context.OutputShape(0), context.OutputDType(0)));
  WEFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(context.attributes().Int("axis", 0),
                                                      context.OutputShape(0).rank()));
  std::vector<StridedCopy> copies;
  int64_t first = 0;
  for (int i = 0; i < context.num_inputs(); ++i) {
    const int64_t part = context.InputShape(i).dim(axis);
    copies.emplace_back(std::vector<CopyAxis>{{cut.outer, part * cut.inner, cut.whole * cut.inner},
                                              {part * cut.inner, 1, 1}},
                        cut.width, /*from_offset=*/0, /*to_offset=*/first * cut.inner);
    first += part;
  }
  return MakeKernel(
      [copies = std::move(copies), threads = context.threads()](const KernelContext& run) {
        for (size_t i = 0; i < copies.size(); ++i) {
          copies[i].Run(run.inputs[i], run.outputs[0], threads);
        }
        return absl::OkStatus();
      });
}

// The size of each part, in order, also of those that nobody wants.
absl::StatusOr<std::vector<int64_t>> PartSizes(const PrepareContext& context, int64_t whole) {
  if (context.HasInput(1)) {
    const Tensor* sizes = context.InputValue(1);
    if (sizes == nullptr) return context.Unimplemented("the sizes depend on data");
    return ToInt64s(*sizes);
  }
  const int64_t parts = context.num_outputs();
  const int64_t size = (whole + parts - 1) / parts;
  std::vector<int64_t> equal(parts, size);
  equal.back() = whole - size * (parts - 1);
  return equal;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSplit(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const Cut cut,
                        CutOf(context, context.InputShape(0), context.InputDType(0)));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> parts, PartSizes(context, cut.whole));
  std::vector<StridedCopy> copies;
  int64_t first = 0;
  for (int i = 0; i < context.num_outputs(); ++i) {
    const int64_t part = parts[i];
    if (context.HasOutput(i)) {
      copies.emplace_back(
          std::vector<CopyAxis>{{cut.outer, cut.whole * cut.inner, part * cut.inner},
                                {part * cut.inner, 1, 1}},
          cut.width, /*from_offset=*/first * cut.inner);
    } else {
      copies.emplace_back();
    }
    first += part;
  }
  return MakeKernel(
      [copies = std::move(copies), threads = context.threads()](const KernelContext& run) {
        for (size_t i = 0; i < copies.size(); ++i) {
          copies[i].Run(run.inputs[0], run.outputs[i], threads);
        }
        return absl::OkStatus();
      });
}

// Bytes are moved, whatever they mean: the kernels are their own references.
WEFT_REGISTER_KERNEL("", "Concat", DeviceKind::kCpu, PrepareConcat);
WEFT_REGISTER_REFERENCE_KERNEL("", "Concat", PrepareConcat);
WEFT_REGISTER_KERNEL("", "Split", DeviceKind::kCpu, PrepareSplit);
WEFT_REGISTER_REFERENCE_KERNEL("", "Split", PrepareSplit);

}  // namespace
}  // namespace weft::cpu
