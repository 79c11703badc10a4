// Reference kernels of GatherElements and its gradient.
#include "absl/strings/str_cat.h"
#include "ops/kernels/reference/reference.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// For each element of the indices: fn(its offset, the offset of the element of `data` it names).
template <typename Fn>
absl::Status ForEachIndex(const ReferenceOperand& indices, const Shape& data, int64_t axis, Fn fn) {
  WEFT_ASSIGN_OR_RETURN(const int own, NormalizeAxis(axis, data.rank()));
  const auto strides = data.Strides();
  for (int64_t i = 0; i < indices.size(); ++i) {
    int64_t index = static_cast<int64_t>(indices[i]);
    if (index < 0) index += data.dim(own);
    if (index < 0 || index >= data.dim(own)) {
      return absl::InvalidArgumentError(absl::StrCat("index ", index, " is out of range"));
    }
    int64_t offset = 0;
    int64_t rest = i;
    for (int d = data.rank() - 1; d >= 0; --d) {
      const int64_t coordinate = rest % indices.shape.dim(d);
      rest /= indices.shape.dim(d);
      offset += (d == own ? index : coordinate) * strides[d];
    }
    fn(i, offset);
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("", "GatherElements", ReferenceKernel([](ReferenceCall& call) {
                                 return ForEachIndex(call.input(1), call.input(0).shape,
                                                     call.attributes().Int("axis", 0),
                                                     [&](int64_t i, int64_t from) {
                                                       call.output(0)[i] = call.input(0)[from];
                                                     });
                               }));

WEFT_REGISTER_REFERENCE_KERNEL(
    "ai.weft", "GatherElementsGrad", ReferenceKernel([](ReferenceCall& call) {
      return ForEachIndex(call.input(1), call.output(0).shape, call.attributes().Int("axis", 0),
                          [&](int64_t i, int64_t to) { call.output(0)[to] += call.input(0)[i]; });
    }));

}  // namespace
}  // namespace weft::cpu
