// HannWindow, HammingWindow, BlackmanWindow and MelWeightMatrix: tables of known size, computed in
// double when the kernel is prepared.
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// Writes `values` as elements of output 0.
absl::StatusOr<std::unique_ptr<Kernel>> MakeTable(const PrepareContext& context,
                                                  const std::vector<double>& values) {
  const Tensor doubles = Tensor::Of<double>(context.OutputShape(0), values);
  WEFT_ASSIGN_OR_RETURN(const Tensor table, CastTensor(doubles, context.OutputDType(0)));
  return MakeKernel([table](const KernelContext& run) {
    if (table.bytes() > 0) std::memcpy(run.outputs[0], table.raw_data(), table.bytes());
    return absl::OkStatus();
  });
}

// a - b cos(2 pi i / n) + c cos(4 pi i / n).
KernelFactory CosineWindow(double a, double b, double c) {
  return [=](const PrepareContext& context) {
    const int64_t size = context.OutputShape(0).dim(0);
    const bool periodic = context.attributes().Int("periodic", 1) != 0;
    const double period = static_cast<double>(periodic ? size : size - 1);
    std::vector<double> values;
    for (int64_t i = 0; i < size; ++i) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(i) / period;
      values.push_back(a - b * std::cos(angle) + c * std::cos(2 * angle));
    }
    return MakeTable(context, values);
  };
}

// ---- MelWeightMatrix.

double ToMel(double hertz) { return 2595.0 * std::log10(1.0 + hertz / 700.0); }
double ToHertz(double mel) { return 700.0 * (std::pow(10.0, mel / 2595.0) - 1.0); }

absl::StatusOr<double> ScalarOf(const PrepareContext& context, int i) {
  const Tensor* value = context.InputValue(i);
  if (value == nullptr || value->num_elements() != 1) {
    return context.InvalidArgument(absl::StrCat("input ", i, " must be one known number"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> values, ToDoubles(*value));
  return values[0];
}

// One triangle per column: up from bin `left` to `centre`, down to `right`.
void AddTriangle(int64_t left, int64_t centre, int64_t right, int64_t columns, double* column) {
  if (centre == left) {
    column[centre * columns] = 1;
  } else {
    for (int64_t i = left; i <= centre; ++i) {
      column[i * columns] = static_cast<double>(i - left) / static_cast<double>(centre - left);
    }
  }
  for (int64_t i = centre; i < right; ++i) {
    column[i * columns] = static_cast<double>(right - i) / static_cast<double>(right - centre);
  }
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMelWeightMatrix(const PrepareContext& context) {
  const Shape& y = context.OutputShape(0);
  WEFT_ASSIGN_OR_RETURN(const double length, ScalarOf(context, 1));
  WEFT_ASSIGN_OR_RETURN(const double rate, ScalarOf(context, 2));
  WEFT_ASSIGN_OR_RETURN(const double lower, ScalarOf(context, 3));
  WEFT_ASSIGN_OR_RETURN(const double upper, ScalarOf(context, 4));
  const int64_t bins = y.dim(1);
  const double low = ToMel(lower);
  const double step = (ToMel(upper) - low) / static_cast<double>(bins + 2);
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double hertz = ToHertz(low + step * static_cast<double>(i));
    const double edge = std::floor((length + 1) * hertz / rate);
    if (!(edge >= 0 && edge < static_cast<double>(y.dim(0))) ||
        (i > 0 && edge < static_cast<double>(edges.back()))) {
      return context.InvalidArgument(absl::StrCat("the edge of band ", i, " falls on bin ", edge,
                                                  ", the spectrum has ", y.dim(0)));
    }
    edges.push_back(static_cast<int64_t>(edge));
  }
  std::vector<double> values(static_cast<size_t>(y.num_elements()), 0.0);
  for (int64_t i = 0; i < bins; ++i) {
    AddTriangle(edges[i], edges[i + 1], edges[i + 2], bins, values.data() + i);
  }
  return MakeTable(context, values);
}

}  // namespace

WEFT_REGISTER_KERNEL("", "HannWindow", DeviceKind::kCpu, CosineWindow(0.5, 0.5, 0.0));
WEFT_REGISTER_KERNEL("", "HammingWindow", DeviceKind::kCpu,
                     CosineWindow(25.0 / 46.0, 21.0 / 46.0, 0.0));
WEFT_REGISTER_KERNEL("", "BlackmanWindow", DeviceKind::kCpu, CosineWindow(0.42, 0.5, 0.08));
WEFT_REGISTER_KERNEL("", "MelWeightMatrix", DeviceKind::kCpu, PrepareMelWeightMatrix);

}  // namespace weft::cpu
