// The arithmetic of the adaptive optimizers' updates on arrays, with the vector instructions of the
// machine. The same bits for an element whatever its position and the number of threads.
#ifndef WEFT_OPS_KERNELS_CPU_OPTIMIZER_ADAPTIVE_RULES_H_
#define WEFT_OPS_KERNELS_CPU_OPTIMIZER_ADAPTIVE_RULES_H_

#include <array>
#include <cstdint>
#include <variant>

namespace weft::cpu {

// Formulas: ops/defs/optimizer/update_adaptive.cc. T is float or double.
template <typename T>
struct AdagradRule {
  T step_size = 0;  // with the rate's decay
  T l2_decay = 0;
  T epsilon = 0;
};

template <typename T>
struct AdadeltaRule {
  T learning_rate = 0;
  T l2_decay = 0;
  T rho = 0;
  T square_share = 0;  // 1 - rho
  T epsilon = 0;
};

// State: square, then mean if centered, then velocity if there is one.
template <typename T>
struct RmspropRule {
  T learning_rate = 0;
  T l2_decay = 0;
  T alpha = 0;
  T square_share = 0;  // 1 - alpha
  T epsilon = 0;
  T momentum = 0;
  bool centered = false;
  bool has_velocity = false;
};

template <typename T>
struct LionRule {
  T learning_rate = 0;
  T weight_scale = 1;  // 1 - learning rate * weight decay
  T beta1 = 0;
  T direction_share = 0;  // 1 - beta1
  T beta2 = 0;
  T gradient_share = 0;  // 1 - beta2
};

// `new_w` is the direction.
template <typename T>
struct LambRule {
  T beta1 = 0;
  T gradient_share = 0;  // 1 - beta1
  T beta2 = 0;
  T square_share = 0;  // 1 - beta2
  T epsilon = 0;
  T mean_scale = 1;  // 1 / (1 - beta1^t)
  T root_scale = 1;  // 1 / sqrt(1 - beta2^t)
  T weight_decay = 0;
};

// w is the average, g the weight.
template <typename T>
struct EmaRule {
  T decay = 0;
  T weight_share = 0;  // 1 - decay
};

template <typename T>
using AdaptiveRule = std::variant<AdagradRule<T>, AdadeltaRule<T>, RmspropRule<T>, LionRule<T>,
                                  LambRule<T>, EmaRule<T>>;

// Elements of one parameter. Outputs may be the same memory as inputs.
template <typename T>
struct AdaptiveArrays {
  const T* w = nullptr;
  const T* g = nullptr;
  std::array<const T*, 3> state = {};
  T* new_w = nullptr;
  std::array<T*, 3> new_state = {};
};

// Elements [begin, end).
void AdaptiveUpdate(const AdaptiveRule<float>& rule, const AdaptiveArrays<float>& arrays,
                    int64_t begin, int64_t end);
void AdaptiveUpdate(const AdaptiveRule<double>& rule, const AdaptiveArrays<double>& arrays,
                    int64_t begin, int64_t end);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_OPTIMIZER_ADAPTIVE_RULES_H_
