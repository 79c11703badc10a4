// The arithmetic of optimizer updates on arrays, with the vector instructions of the machine. The
// same bits for an element whatever its position and the number of threads.
#ifndef WEFT_OPS_KERNELS_CPU_OPTIMIZER_UPDATE_RULES_H_
#define WEFT_OPS_KERNELS_CPU_OPTIMIZER_UPDATE_RULES_H_

#include <cstdint>

namespace weft::cpu {

// Formulas: ops/defs/optimizer/update.cc. T is float or double.
template <typename T>
struct SgdRule {
  T learning_rate = 0;
  T momentum = 0;
  T gradient_share = 1;  // 1 - dampening
  T weight_decay = 0;
  T scale = 1;  // of the gradient with its decay
  bool nesterov = false;
};

// Elements of one parameter. `velocity` may be null (then there is none), `new_velocity` too (then
// it is forgotten). Outputs may be the same memory as inputs.
template <typename T>
struct SgdArrays {
  const T* w = nullptr;
  const T* g = nullptr;
  const T* velocity = nullptr;
  T* new_w = nullptr;
  T* new_velocity = nullptr;
};

template <typename T>
struct AdamRule {
  T beta1 = 0;
  T gradient_share = 0;  // 1 - beta1
  T beta2 = 0;
  T square_share = 0;  // 1 - beta2
  T epsilon = 0;
  T step_size = 0;     // learning rate / (1 - beta1^t)
  T root_scale = 1;    // 1 / sqrt(1 - beta2^t)
  T l2_decay = 0;      // added to the gradient, times w
  T weight_scale = 1;  // 1 - learning rate * weight decay, of AdamW
};

template <typename T>
struct AdamArrays {
  const T* w = nullptr;
  const T* g = nullptr;
  const T* m = nullptr;
  const T* v = nullptr;
  T* new_w = nullptr;
  T* new_m = nullptr;
  T* new_v = nullptr;
  // AMSGrad's; both null without.
  const T* v_max = nullptr;
  T* new_v_max = nullptr;
};

// Elements [begin, end).
void SgdUpdate(const SgdRule<float>& rule, const SgdArrays<float>& arrays, int64_t begin,
               int64_t end);
void SgdUpdate(const SgdRule<double>& rule, const SgdArrays<double>& arrays, int64_t begin,
               int64_t end);
void AdamUpdate(const AdamRule<float>& rule, const AdamArrays<float>& arrays, int64_t begin,
                int64_t end);
void AdamUpdate(const AdamRule<double>& rule, const AdamArrays<double>& arrays, int64_t begin,
                int64_t end);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_OPTIMIZER_UPDATE_RULES_H_
