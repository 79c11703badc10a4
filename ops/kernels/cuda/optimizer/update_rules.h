// The arithmetic of optimizers, one rule each. Formulas: ops/defs/optimizer. A rule has
//
//   kStates                   arrays of state beside the parameter
//   kFactors                  numbers that are the same for all elements, made in double
//   static void Prepare(const UpdateAttributes&, const UpdateNow&, double* factors)
//   static void Apply(const T* factors, T& w, T g, T* states)     one element
#ifndef WEFT_OPS_KERNELS_CUDA_OPTIMIZER_UPDATE_RULES_H_
#define WEFT_OPS_KERNELS_CUDA_OPTIMIZER_UPDATE_RULES_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/optimizer/update_calls.h"

namespace weft::cuda {

// What changes from step to step.
struct UpdateNow {
  double rate = 0;
  double scale = 1;
  int64_t step = 0;  // 1 in the first; 0: the op does not read it
};

// base^n by squaring; n >= 0.
WEFT_GPU double PowerOf(double base, int64_t n) {
  double result = 1;
  for (; n > 0; n /= 2) {
    if (n % 2 != 0) result *= base;
    base *= base;
  }
  return result;
}

template <bool kVelocity, bool kNesterov>
struct SgdRule {
  static constexpr int kStates = kVelocity ? 1 : 0;
  static constexpr int kFactors = 5;

  WEFT_GPU static void Prepare(const UpdateAttributes& a, const UpdateNow& now, double* f) {
    f[0] = now.rate;
    f[1] = now.scale;
    f[2] = a.weight_decay;
    f[3] = a.momentum;
    f[4] = now.step == 1 ? 1 : 1 - a.dampening;
  }
  template <typename T>
  WEFT_GPU static void Apply(const T* f, T& w, T g, T* states) {
    g = f[1] * (f[2] * w + g);
    T direction = g;
    if constexpr (kVelocity) {
      states[0] = f[3] * states[0] + f[4] * g;
      direction = kNesterov ? f[3] * states[0] + g : states[0];
    }
    w = w - f[0] * direction;
  }
};

// States m, v and, with kMax, the largest v.
template <bool kMax>
struct AdamRule {
  static constexpr int kStates = kMax ? 3 : 2;
  static constexpr int kFactors = 9;

  WEFT_GPU static void Prepare(const UpdateAttributes& a, const UpdateNow& now, double* f) {
    f[0] = a.beta1;
    f[1] = 1 - a.beta1;
    f[2] = a.beta2;
    f[3] = 1 - a.beta2;
    f[4] = a.epsilon;
    f[5] = now.rate / (1 - PowerOf(a.beta1, now.step));
    f[6] = 1 / std::sqrt(1 - PowerOf(a.beta2, now.step));
    f[7] = a.decoupled ? 0 : a.weight_decay;
    f[8] = a.decoupled ? 1 - now.rate * a.weight_decay : 1;
  }
  template <typename T>
  WEFT_GPU static void Apply(const T* f, T& w, T g, T* states) {
    g = f[7] * w + g;
    const T m = f[0] * states[0] + f[1] * g;
    const T v = f[2] * states[1] + f[3] * g * g;
    T square = v;
    if constexpr (kMax) {
      square = v != v || v > states[2] ? v : states[2];  // NaN stays
      states[2] = square;
    }
    states[0] = m;
    states[1] = v;
    w = f[8] * w - f[5] * m / (f[6] * std::sqrt(square) + f[4]);
  }
};

struct LionRule {
  static constexpr int kStates = 1;
  static constexpr int kFactors = 6;

  WEFT_GPU static void Prepare(const UpdateAttributes& a, const UpdateNow& now, double* f) {
    f[0] = a.beta1;
    f[1] = 1 - a.beta1;
    f[2] = a.beta2;
    f[3] = 1 - a.beta2;
    f[4] = 1 - now.rate * a.weight_decay;
    f[5] = now.rate;
  }
  template <typename T>
  WEFT_GPU static void Apply(const T* f, T& w, T g, T* states) {
    const T mixed = f[0] * states[0] + f[1] * g;
    const T sign = mixed > 0 ? T(1) : mixed < 0 ? T(-1) : mixed;  // 0, or NaN
    w = f[4] * w - f[5] * sign;
    states[0] = f[2] * states[0] + f[3] * g;
  }
};

// States: the mean square, with kMean the mean, with kMomentum the last direction.
template <bool kMean, bool kMomentum>
struct RmspropRule {
  static constexpr int kStates = 1 + (kMean ? 1 : 0) + (kMomentum ? 1 : 0);
  static constexpr int kFactors = 6;

  WEFT_GPU static void Prepare(const UpdateAttributes& a, const UpdateNow& now, double* f) {
    f[0] = a.beta1;
    f[1] = 1 - a.beta1;
    f[2] = a.epsilon;
    f[3] = a.momentum;
    f[4] = now.rate;
    f[5] = a.weight_decay;
  }
  template <typename T>
  WEFT_GPU static void Apply(const T* f, T& w, T g, T* states) {
    g = f[5] * w + g;
    states[0] = f[0] * states[0] + f[1] * g * g;
    T spread = states[0];
    if constexpr (kMean) {
      states[1] = f[0] * states[1] + f[1] * g;
      spread = spread - states[1] * states[1];
    }
    T direction = g / (std::sqrt(spread) + f[2]);
    if constexpr (kMomentum) {
      direction = f[3] * states[kStates - 1] + direction;
      states[kStates - 1] = direction;
    }
    w = w - f[4] * direction;
  }
};

// States: mean squares of the gradient and of the steps.
struct AdadeltaRule {
  static constexpr int kStates = 2;
  static constexpr int kFactors = 5;

  WEFT_GPU static void Prepare(const UpdateAttributes& a, const UpdateNow& now, double* f) {
    f[0] = a.beta1;
    f[1] = 1 - a.beta1;
    f[2] = a.epsilon;
    f[3] = now.rate;
    f[4] = a.weight_decay;
  }
  template <typename T>
  WEFT_GPU static void Apply(const T* f, T& w, T g, T* states) {
    g = f[4] * w + g;
    states[0] = f[0] * states[0] + f[1] * g * g;
    const T delta = std::sqrt(states[1] + f[2]) / std::sqrt(states[0] + f[2]) * g;
    states[1] = f[0] * states[1] + f[1] * delta * delta;
    w = w - f[3] * delta;
  }
};

struct AdagradRule {
  static constexpr int kStates = 1;
  static constexpr int kFactors = 3;

  WEFT_GPU static void Prepare(const UpdateAttributes& a, const UpdateNow& now, double* f) {
    f[0] = now.rate / (1 + static_cast<double>(now.step - 1) * a.rate_decay);
    f[1] = a.epsilon;
    f[2] = a.weight_decay;
  }
  template <typename T>
  WEFT_GPU static void Apply(const T* f, T& w, T g, T* states) {
    g = f[2] * w + g;
    states[0] = states[0] + g * g;
    w = w - f[0] * g / (std::sqrt(states[0]) + f[1]);
  }
};

struct RadamRule {
  static constexpr int kStates = 2;
  static constexpr int kFactors = 9;

  WEFT_GPU static void Prepare(const UpdateAttributes& a, const UpdateNow& now, double* f) {
    const double t = static_cast<double>(now.step);
    const double power2 = PowerOf(a.beta2, now.step);
    const double longest = 2 / (1 - a.beta2) - 1;
    const double length = longest - 2 * t * power2 / (1 - power2);
    f[0] = a.beta1;
    f[1] = 1 - a.beta1;
    f[2] = a.beta2;
    f[3] = 1 - a.beta2;
    f[4] = a.epsilon;
    f[5] = a.weight_decay;
    f[6] = now.rate / (1 - PowerOf(a.beta1, now.step));
    // What rectifies the step; 0: too early, the step is not divided by the root.
    f[7] = 0;
    if (length > 5) {
      f[7] = std::sqrt((length - 4) * (length - 2) * longest /
                       ((longest - 4) * (longest - 2) * length)) *
             std::sqrt(1 - power2);
    }
    f[8] = length > 5 ? 1 : 0;
  }
  template <typename T>
  WEFT_GPU static void Apply(const T* f, T& w, T g, T* states) {
    g = f[5] * w + g;
    states[0] = f[0] * states[0] + f[1] * g;
    states[1] = f[2] * states[1] + f[3] * g * g;
    T step = f[6] * states[0];
    if (f[8] != 0) step = step * f[7] / (std::sqrt(states[1]) + f[4]);
    w = w - step;
  }
};

// The direction takes the place of the parameter.
struct LambRule {
  static constexpr int kStates = 2;
  static constexpr int kFactors = 8;

  WEFT_GPU static void Prepare(const UpdateAttributes& a, const UpdateNow& now, double* f) {
    f[0] = a.beta1;
    f[1] = 1 - a.beta1;
    f[2] = a.beta2;
    f[3] = 1 - a.beta2;
    f[4] = a.epsilon;
    f[5] = a.weight_decay;
    f[6] = 1 / (1 - PowerOf(a.beta1, now.step));
    f[7] = 1 / std::sqrt(1 - PowerOf(a.beta2, now.step));
  }
  template <typename T>
  WEFT_GPU static void Apply(const T* f, T& w, T g, T* states) {
    states[0] = f[0] * states[0] + f[1] * g;
    states[1] = f[2] * states[1] + f[3] * g * g;
    w = f[6] * states[0] / (f[7] * std::sqrt(states[1]) + f[4]) + f[5] * w;
  }
};

// w is the average, g the parameter.
struct EmaRule {
  static constexpr int kStates = 0;
  static constexpr int kFactors = 2;

  WEFT_GPU static void Prepare(const UpdateAttributes& a, const UpdateNow& /*now*/, double* f) {
    f[0] = a.beta1;
    f[1] = 1 - a.beta1;
  }
  template <typename T>
  WEFT_GPU static void Apply(const T* f, T& w, T g, T* /*states*/) {
    w = f[0] * w + f[1] * g;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_OPTIMIZER_UPDATE_RULES_H_
