// PlaceSamples.
#include <algorithm>

#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> PreparePlaceSamples(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  const int64_t count = shape.num_elements();
  const int64_t room = context.OutputShape(0).num_elements();
  const int64_t stride = shape.ProductOf(1, shape.rank());
  return PrepareByDType(context, context.InputDType(0), FloatTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          return MakeKernel([=](const KernelContext& run) -> absl::Status {
                            const int64_t first = run.first_sample * stride;
                            if (first + count > room) {
                              return absl::InternalError(
                                  absl::StrCat("PlaceSamples has room for ", room,
                                               " numbers, and got ", count, " from place ", first));
                            }
                            T* const y = Output<T>(run, 0);
                            std::fill(y, y + room, T{});
                            if (count > 0) std::copy_n(Input<T>(run, 0), count, y + first);
                            return absl::OkStatus();
                          });
                        });
}

}  // namespace

WEFT_REGISTER_KERNEL(kWeftDomain, "PlaceSamples", DeviceKind::kCpu, PreparePlaceSamples);

}  // namespace weft::cpu
