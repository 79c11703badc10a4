// Shape and Size: written from what the factory saw.
#include <algorithm>
#include <cstring>

#include "ops/kernel.h"

namespace weft::cpu {
namespace {

std::unique_ptr<Kernel> WriteInts(std::vector<int64_t> values) {
  return MakeKernel([values = std::move(values)](const KernelContext& run) {
    if (!values.empty()) {
      std::memcpy(run.outputs[0], values.data(), values.size() * sizeof(int64_t));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareShape(const PrepareContext& context) {
  const Shape& input = context.InputShape(0);
  int64_t start = context.attributes().Int("start", 0);
  if (start < 0) start += input.rank();
  start = std::clamp<int64_t>(start, 0, input.rank());
  // The shape function counted the elements up to `end`.
  const int64_t count = context.OutputShape(0).num_elements();
  const auto dims = input.dims().subspan(start, count);
  return WriteInts(std::vector<int64_t>(dims.begin(), dims.end()));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareSize(const PrepareContext& context) {
  return WriteInts({context.InputShape(0).num_elements()});
}

WEFT_REGISTER_KERNEL("", "Shape", DeviceKind::kCpu, PrepareShape);
WEFT_REGISTER_REFERENCE_KERNEL("", "Shape", PrepareShape);
WEFT_REGISTER_KERNEL("", "Size", DeviceKind::kCpu, PrepareSize);
WEFT_REGISTER_REFERENCE_KERNEL("", "Size", PrepareSize);

}  // namespace
}  // namespace weft::cpu
