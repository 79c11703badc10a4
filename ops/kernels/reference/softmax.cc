// Reference kernels of Softmax, LogSoftmax and their gradients.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

// Calls fn(offset of the first element, distance between elements, elements) for each row along the
// node's axis.
template <typename Fn>
void ForEachRow(const ReferenceCall& call, Fn fn) {
  const Shape& shape = call.input(0).shape;
  if (shape.rank() == 0) return fn(0, 1, 1);
  const int64_t given = call.attributes().Int("axis", -1);
  const int axis = static_cast<int>(given < 0 ? given + shape.rank() : given);
  const int64_t inner = shape.ProductOf(axis + 1, shape.rank());
  const int64_t size = shape.dim(axis);
  for (int64_t o = 0; o < shape.ProductOf(0, axis); ++o) {
    for (int64_t i = 0; i < inner; ++i) fn(o * size * inner + i, inner, size);
  }
}

absl::Status Softmax(ReferenceCall& call, bool log) {
  const ReferenceOperand& x = call.input(0);
  ReferenceOperand& y = call.output(0);
  ForEachRow(call, [&](int64_t first, int64_t stride, int64_t size) {
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t k = 0; k < size; ++k) largest = std::max(largest, x[first + k * stride]);
    double sum = 0;
    for (int64_t k = 0; k < size; ++k) sum += std::exp(x[first + k * stride] - largest);
    for (int64_t k = 0; k < size; ++k) {
      const double log_probability = x[first + k * stride] - largest - std::log(sum);
      y[first + k * stride] = log ? log_probability : std::exp(log_probability);
    }
  });
  return absl::OkStatus();
}

absl::Status SoftmaxGrad(ReferenceCall& call) {
  const ReferenceOperand& dy = call.input(0);
  const ReferenceOperand& y = call.input(1);
  ForEachRow(call, [&](int64_t first, int64_t stride, int64_t size) {
    double sum = 0;
    for (int64_t k = 0; k < size; ++k) sum += dy[first + k * stride] * y[first + k * stride];
    for (int64_t k = 0; k < size; ++k) {
      const int64_t i = first + k * stride;
      call.output(0)[i] = y[i] * (dy[i] - sum);
    }
  });
  return absl::OkStatus();
}

absl::Status LogSoftmaxGrad(ReferenceCall& call) {
  const ReferenceOperand& dy = call.input(0);
  const ReferenceOperand& y = call.input(1);
  ForEachRow(call, [&](int64_t first, int64_t stride, int64_t size) {
    double sum = 0;
    for (int64_t k = 0; k < size; ++k) sum += dy[first + k * stride];
    for (int64_t k = 0; k < size; ++k) {
      const int64_t i = first + k * stride;
      call.output(0)[i] = dy[i] - std::exp(y[i]) * sum;
    }
  });
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("", "Softmax", ReferenceKernel([](ReferenceCall& call) {
                                 return Softmax(call, /*log=*/false);
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("", "LogSoftmax", ReferenceKernel([](ReferenceCall& call) {
                                 return Softmax(call, /*log=*/true);
                               }));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "SoftmaxGrad", ReferenceKernel(SoftmaxGrad));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "LogSoftmaxGrad", ReferenceKernel(LogSoftmaxGrad));

}  // namespace
}  // namespace weft::cpu
