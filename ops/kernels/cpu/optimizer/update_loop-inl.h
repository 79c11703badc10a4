// Loops over the elements of a parameter, for files that Highway compiles once per instruction set.
// A rule is a class that is made from Attributes and has
//   template <typename T>
//   void Run(const UpdateScalars&, const UpdateArrays<T>&, int64_t begin, int64_t end) const;

// Included once per target: see foreach_target.h.
#if defined(WEFT_OPS_KERNELS_CPU_OPTIMIZER_UPDATE_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_OPS_KERNELS_CPU_OPTIMIZER_UPDATE_LOOP_INL_H_
#undef WEFT_OPS_KERNELS_CPU_OPTIMIZER_UPDATE_LOOP_INL_H_
#else
#define WEFT_OPS_KERNELS_CPU_OPTIMIZER_UPDATE_LOOP_INL_H_
#endif

#include <cstdint>
#include <memory>

#include "hwy/highway.h"
#include "ops/kernels/cpu/optimizer/update_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Calls body(tag, i) for vectors, and for the rest with one lane: the same operations on each
// element.
template <typename T, typename Body>
HWY_INLINE void ForEachVector(int64_t begin, int64_t end, const Body& body) {
  const hn::ScalableTag<T> vector;
  const hn::CappedTag<T, 1> single;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(vector));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) body(vector, i);
  for (; i < end; ++i) body(single, i);
}

template <class Rule>
class VectorRule final : public UpdateRule {
 public:
  explicit VectorRule(const Attributes& attributes) : rule_(attributes) {}
  void Run(const UpdateScalars& now, const UpdateArrays<float>& arrays, int64_t begin,
           int64_t end) const override {
    rule_.Run(now, arrays, begin, end);
  }
  void Run(const UpdateScalars& now, const UpdateArrays<double>& arrays, int64_t begin,
           int64_t end) const override {
    rule_.Run(now, arrays, begin, end);
  }

 private:
  const Rule rule_;
};

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif  // WEFT_OPS_KERNELS_CPU_OPTIMIZER_UPDATE_LOOP_INL_H_
