// The kernel around the arithmetic of an optimizer's update: operands, scalars, threads. A rule is
// one file, compiled once for each instruction set:
//
//   WEFT_REGISTER_KERNEL("ai.weft", "LionUpdate", DeviceKind::kCpu,
//                        UpdateKernel({.nanoseconds = 2}, [](const Attributes& attributes) {
//                          return HWY_DYNAMIC_DISPATCH(MakeLionRule)(attributes);
//                        }));
#ifndef WEFT_OPS_KERNELS_CPU_OPTIMIZER_UPDATE_KERNEL_H_
#define WEFT_OPS_KERNELS_CPU_OPTIMIZER_UPDATE_KERNEL_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "ops/defs/optimizer/update_operands.h"
#include "ops/kernel.h"

namespace weft::cpu {

inline constexpr int kMaxStates = 4;

// Elements of one parameter, T is float or double. State is in the order of the op's inputs; null
// where it is absent. Outputs may be the same memory as inputs.
template <typename T>
struct UpdateArrays {
  const T* w = nullptr;  // input 0
  const T* g = nullptr;  // input 1
  std::array<const T*, kMaxStates> state = {};
  T* new_w = nullptr;  // output 0
  std::array<T*, kMaxStates> new_state = {};
};

// What changes from step to step.
struct UpdateScalars {
  double learning_rate = 0;
  double step = 0;  // 1 in the first; 0: the op does not read it
  double scale = 1;
};

// The arithmetic, for one set of attributes. What is the same for all elements is computed in
// double. The same bits for an element whatever its position and the number of threads.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // Elements [begin, end).
  virtual void Run(const UpdateScalars& now, const UpdateArrays<float>& arrays, int64_t begin,
                   int64_t end) const = 0;
  virtual void Run(const UpdateScalars& now, const UpdateArrays<double>& arrays, int64_t begin,
                   int64_t end) const = 0;
};

// What an element takes, to decide on threads.
struct UpdateTime {
  double nanoseconds = 1;
  double more_per_state = 0;
};

// A factory for parameters in float32 and float64. The schema says by its names which operand is
// what (update_operands.h). Unimplemented for a node that does not want the new value of a state.
KernelFactory UpdateKernel(UpdateTime time,
                           std::function<std::unique_ptr<UpdateRule>(const Attributes&)> make_rule);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_OPTIMIZER_UPDATE_KERNEL_H_
