// Reference kernels of ScatterElements, ScatterND, GatherND and its gradient.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/kernels/reference/reference.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

double Combined(const std::string& reduction, double old_value, double update) {
  if (reduction == "add") return old_value + update;
  if (reduction == "mul") return old_value * update;
  if (reduction == "max") return std::max(old_value, update);
  if (reduction == "min") return std::min(old_value, update);
  return update;
}

// `index` counted from the front, or -1 where it is outside.
int64_t Resolved(double index, int64_t size) {
  const int64_t given = static_cast<int64_t>(index);
  const int64_t resolved = given < 0 ? given + size : given;
  return resolved >= 0 && resolved < size ? resolved : -1;
}

absl::Status Outside() { return absl::InvalidArgumentError("an index is out of range"); }

absl::Status ScatterElements(ReferenceCall& call) {
  const ReferenceOperand& indices = call.input(1);
  const Shape& data = call.input(0).shape;
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(call.attributes().Int("axis", 0), data.rank()));
  const std::string reduction = call.attributes().String("reduction", "none");
  call.output(0).values = call.input(0).values;
  const auto strides = data.Strides();
  for (int64_t i = 0; i < indices.size(); ++i) {
    const int64_t index = Resolved(indices[i], data.dim(axis));
    if (index < 0) return Outside();
    int64_t to = index * strides[axis];
    for (int64_t d = data.rank() - 1, rest = i; d >= 0; rest /= indices.shape.dim(d), --d) {
      if (d != axis) to += rest % indices.shape.dim(d) * strides[d];
    }
    call.output(0)[to] = Combined(reduction, call.output(0)[to], call.input(2)[i]);
  }
  return absl::OkStatus();
}

// For every tuple: fn(element of the gathered rows, element of the data).
template <typename Fn>
absl::Status ForEachRowElement(const ReferenceOperand& indices, const Shape& data, int batch_dims,
                               Fn fn) {
  const int last = indices.shape.rank() - 1;
  const int64_t depth = indices.shape.dim(last);
  const int64_t row = data.ProductOf(batch_dims + static_cast<int>(depth), data.rank());
  const int64_t tuples = indices.shape.ProductOf(0, last);
  const int64_t per_batch = indices.shape.ProductOf(batch_dims, last);
  for (int64_t t = 0; t < tuples; ++t) {
    int64_t offset = t / per_batch;
    for (int k = 0; k < depth; ++k) {
      const int64_t size = data.dim(batch_dims + k);
      const int64_t index = Resolved(indices[t * depth + k], size);
      if (index < 0) return Outside();
      offset = offset * size + index;
    }
    for (int64_t e = 0; e < row; ++e) fn(t * row + e, offset * row + e);
  }
  return absl::OkStatus();
}

absl::Status GatherNd(ReferenceCall& call) {
  return ForEachRowElement(
      call.input(1), call.input(0).shape, static_cast<int>(call.attributes().Int("batch_dims", 0)),
      [&](int64_t row, int64_t data) { call.output(0)[row] = call.input(0)[data]; });
}

absl::Status GatherNdGrad(ReferenceCall& call) {
  return ForEachRowElement(
      call.input(1), call.output(0).shape, static_cast<int>(call.attributes().Int("batch_dims", 0)),
      [&](int64_t row, int64_t data) { call.output(0)[data] += call.input(0)[row]; });
}

absl::Status ScatterNd(ReferenceCall& call) {
  const std::string reduction = call.attributes().String("reduction", "none");
  call.output(0).values = call.input(0).values;
  return ForEachRowElement(call.input(1), call.input(0).shape, 0, [&](int64_t row, int64_t data) {
    call.output(0)[data] = Combined(reduction, call.output(0)[data], call.input(2)[row]);
  });
}

WEFT_REGISTER_REFERENCE_KERNEL("", "ScatterElements", ReferenceKernel(ScatterElements));
WEFT_REGISTER_REFERENCE_KERNEL("", "ScatterND", ReferenceKernel(ScatterNd));
WEFT_REGISTER_REFERENCE_KERNEL("", "GatherND", ReferenceKernel(GatherNd));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "GatherNdGrad", ReferenceKernel(GatherNdGrad));

}  // namespace
}  // namespace weft::cpu
