// GatherElements and GatherElementsGrad: one index per element.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/operand.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// Walks the indices in order and finds the element of the data that each names.
class ElementWalk {
 public:
  static absl::StatusOr<ElementWalk> Make(const PrepareContext& context, const Shape& data) {
    ElementWalk walk;
    WEFT_ASSIGN_OR_RETURN(walk.axis_,
                          NormalizeAxis(context.attributes().Int("axis", 0), data.rank()));
    walk.indices_ = context.InputShape(1);
    walk.size_ = data.dim(walk.axis_);
    const auto strides = data.Strides();
    std::copy(strides.begin(), strides.end(), walk.strides_.begin());
    return walk;
  }

  // fn(position among the indices, offset in the data). InvalidArgument for an index outside of the
  // axis, with its position.
  template <typename L, typename Fn>
  absl::Status ForEach(const L* indices, Fn fn) const {
    std::array<int64_t, kMaxRank> at = {};
    const int64_t count = indices_.num_elements();
    int64_t base = 0;  // of the coordinates, without the axis
    for (int64_t i = 0; i < count; ++i) {
      const int64_t given = static_cast<int64_t>(indices[i]);
      const int64_t index = given < 0 ? given + size_ : given;
      if (index < 0 || index >= size_) return OutOfRange(given, i);
      fn(i, base + index * strides_[axis_]);
      for (int d = indices_.rank() - 1; d >= 0; --d) {
        const int64_t stride = d == axis_ ? 0 : strides_[d];
        base += stride;
        if (++at[d] < indices_.dim(d)) break;
        base -= at[d] * stride;
        at[d] = 0;
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status OutOfRange(int64_t index, int64_t position) const {
    return absl::InvalidArgumentError(absl::StrCat("index ", index, " at element ", position,
                                                   " of the indices is outside [", -size_, ", ",
                                                   size_, ") of axis ", axis_));
  }

  Shape indices_;
  int axis_ = 0;
  int64_t size_ = 0;
  std::array<int64_t, kMaxRank> strides_ = {};
};

// Gathering only moves elements: by their size, not their type.
template <typename T, typename L>
std::unique_ptr<Kernel> MakeGather(const ElementWalk& walk) {
  return MakeKernel([walk](const KernelContext& run) {
    const T* data = Input<T>(run, 0);
    T* out = Output<T>(run, 0);
    return walk.ForEach(Input<L>(run, 1), [&](int64_t i, int64_t from) { out[i] = data[from]; });
  });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGatherElements(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ElementWalk walk, ElementWalk::Make(context, context.InputShape(0)));
  return PrepareByDType(context, context.InputDType(1), IndexTypes(),
                        [&](auto index) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using L = decltype(index);
                          switch (DTypeBits(context.InputDType(0))) {
                            case 8:
                              return MakeGather<uint8_t, L>(walk);
                            case 16:
                              return MakeGather<uint16_t, L>(walk);
                            case 32:
                              return MakeGather<uint32_t, L>(walk);
                            case 64:
                              return MakeGather<uint64_t, L>(walk);
                            default:
                              return context.Unimplemented("no kernel for elements of this size");
                          }
                        });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGatherElementsGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ElementWalk walk, ElementWalk::Make(context, context.OutputShape(0)));
  const int64_t elements = context.OutputShape(0).num_elements();
  return PrepareByDType(context, context.InputDType(0), FloatTypes(), [&](auto zero) {
    using T = decltype(zero);
    return PrepareByDType(context, context.InputDType(1), IndexTypes(),
                          [&](auto index) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            using L = decltype(index);
                            return MakeKernel([walk, elements](const KernelContext& run) {
                              const T* dy = Input<T>(run, 0);
                              T* out = Output<T>(run, 0);
                              std::fill(out, out + elements, T{});
                              return walk.ForEach(Input<L>(run, 1), [&](int64_t i, int64_t to) {
                                out[to] = Store<T>(Load(out[to]) + Load(dy[i]));
                              });
                            });
                          });
  });
}

WEFT_REGISTER_KERNEL("", "GatherElements", DeviceKind::kCpu, PrepareGatherElements);
WEFT_REGISTER_KERNEL(kWeftDomain, "GatherElementsGrad", DeviceKind::kCpu,
                     PrepareGatherElementsGrad);

}  // namespace
}  // namespace weft::cpu
