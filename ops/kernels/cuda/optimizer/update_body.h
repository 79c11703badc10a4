// Bodies of optimizers: one pass over parameter, gradient and states, 16 bytes of each at a time.
#ifndef WEFT_OPS_KERNELS_CUDA_OPTIMIZER_UPDATE_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_OPTIMIZER_UPDATE_BODY_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/optimizer/many_tensors.h"
#include "ops/kernels/cuda/optimizer/update_calls.h"
#include "ops/kernels/cuda/optimizer/update_rules.h"

namespace weft::cuda {

// Updates of many parameters. The first thread of a block makes the factors, in double; the others
// take them from shared memory. Rate, scale and step are read here: the host never waits for them.
template <class Rule, typename T>
struct UpdateBody {
  static constexpr int kWidth = kWidest<T>;
  static constexpr int kStates = Rule::kStates;
  static constexpr int kArrays = kStates > 0 ? kStates : 1;
  // Of 256 threads: 48 registers each, in which all rules of float32 with two states have room.
  static constexpr int kMinBlocks = sizeof(T) == 4 && kStates <= 2 ? 5 : 1;

  struct Item : TensorItem {
    const T* w;
    const T* g;
    T* new_w;
    const T* state[kArrays];
    T* new_state[kArrays];
    const void* rate;
    const void* scale;
    const int64_t* step;
    const char* source;
  };
  struct Common {
    UpdateAttributes attributes;
    DType rate_dtype;
    DType scale_dtype;
    DeviceFault* fault;
  };
  static constexpr int kItems = ItemsOfALaunch<Item>(sizeof(Common) + 16);

  Common common;
  int used;
  Item items[kItems];

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const ItemThreads own = ThreadsOf(gpu, items, used);
    const Item& item = items[own.item];
    const auto shared = gpu.template Shared<0, T, Rule::kFactors>();
    if (gpu.thread() == 0) {
      double made[Rule::kFactors] = {};
      Rule::Prepare(common.attributes, Now(gpu, item), made);
      WEFT_UNROLL
      for (int f = 0; f < Rule::kFactors; ++f) shared[f] = static_cast<T>(made[f]);
    }
    gpu.Barrier();
    T factors[Rule::kFactors];
    WEFT_UNROLL
    for (int f = 0; f < Rule::kFactors; ++f) factors[f] = shared[f];
    for (int64_t i = own.index; i < item.packets; i += own.stride) {
      Update<kWidth>(gpu, ItemFor(items, own.item, i), factors, i * kWidth);
    }
    for (int64_t i = item.packets * kWidth + own.index; i < item.count; i += own.stride) {
      Update<1>(gpu, ItemFor(items, own.item, i), factors, i);
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU UpdateNow Now(Gpu& gpu, const Item& item) const {
    UpdateNow now;
    if (item.rate != nullptr) now.rate = ReadReal(gpu, {item.rate, common.rate_dtype}, 0);
    if (item.scale != nullptr) now.scale = ReadReal(gpu, {item.scale, common.scale_dtype}, 0);
    if (item.step != nullptr) {
      now.step = gpu.Global(item.step)[0];
      const FaultReport report{common.fault, item.source, 1, INT64_MAX};
      if (!InRange(gpu, report, now.step, 0)) now.step = 1;
    }
    return now;
  }

  // Elements i to i + kCount.
  template <int kCount, class Gpu>
  WEFT_GPU void Update(Gpu& gpu, const Item& item, const T* factors, int64_t i) const {
    Packet<T, kCount> parameter = gpu.template Load<kCount>(gpu.Global(item.w), i);
    const Packet<T, kCount> gradient = gpu.template Load<kCount>(gpu.Global(item.g), i);
    Packet<T, kCount> states[kArrays] = {};
    WEFT_UNROLL
    for (int s = 0; s < kStates; ++s) {
      states[s] = gpu.template Load<kCount>(gpu.Global(item.state[s]), i);
    }
    WEFT_UNROLL
    for (int k = 0; k < kCount; ++k) {
      T own[kArrays] = {};
      WEFT_UNROLL
      for (int s = 0; s < kStates; ++s) own[s] = states[s].values[k];
      Rule::Apply(factors, parameter.values[k], gradient.values[k], own);
      WEFT_UNROLL
      for (int s = 0; s < kStates; ++s) states[s].values[k] = own[s];
    }
    WEFT_UNROLL
    for (int s = 0; s < kStates; ++s) {
      gpu.template Store<kCount>(gpu.Global(item.new_state[s]), i, states[s]);
    }
    gpu.template Store<kCount>(gpu.Global(item.new_w), i, parameter);
  }
};

// Many tensors, each times a number of its own.
template <typename T>
struct ScaleBody {
  static constexpr int kWidth = kWidest<T>;

  struct Item : TensorItem {
    const T* x;
    const T* s;
    T* y;
  };
  static constexpr int kItems = ItemsOfALaunch<Item>(16);

  int used;
  Item items[kItems];

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const ItemThreads own = ThreadsOf(gpu, items, used);
    const Item& item = items[own.item];
    const T element = gpu.Global(item.s)[0];
    const Compute<T> scale = Widen(element);
    const auto from = gpu.Global(item.x);
    const auto to = gpu.Global(item.y);
    for (int64_t i = own.index; i < item.packets; i += own.stride) {
      Packet<T, kWidth> packet = gpu.template Load<kWidth>(from, i * kWidth);
      WEFT_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        packet.values[k] = Narrow<T>(Widen(packet.values[k]) * scale);
      }
      gpu.template Store<kWidth>(to, i * kWidth, packet);
    }
    for (int64_t i = item.packets * kWidth + own.index; i < item.count; i += own.stride) {
      const T value = from[i];
      to[i] = Narrow<T>(Widen(value) * scale);
    }
  }
};

// 16-bit floats are added in float32.
template <typename T>
struct AddBody {
  static constexpr int kWidth = kWidest<T>;

  const T* x[kMaxAddends];
  int addends;
  T* y;
  int64_t count;
  int64_t packets;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t i = gpu.index(); i < packets; i += gpu.stride()) Add<kWidth>(gpu, i * kWidth);
    for (int64_t i = packets * kWidth + gpu.index(); i < count; i += gpu.stride()) Add<1>(gpu, i);
  }

 private:
  template <int kCount, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, int64_t i) const {
    Packet<T, kCount> packet = gpu.template Load<kCount>(gpu.Global(x[0]), i);
    Compute<T> sums[kCount];
    WEFT_UNROLL
    for (int k = 0; k < kCount; ++k) sums[k] = Widen(packet.values[k]);
    for (int n = 1; n < addends; ++n) {
      packet = gpu.template Load<kCount>(gpu.Global(x[n]), i);
      WEFT_UNROLL
      for (int k = 0; k < kCount; ++k) {
        sums[k] = static_cast<Compute<T>>(sums[k] + Widen(packet.values[k]));
      }
    }
    WEFT_UNROLL
    for (int k = 0; k < kCount; ++k) packet.values[k] = Narrow<T>(sums[k]);
    gpu.template Store<kCount>(gpu.Global(y), i, packet);
  }
};

template <typename T>
struct TrustRatioBody {
  const T* w;
  const T* u;
  T* ratio;
  int64_t count;
  double coefficient;
  double weight_decay;
  double epsilon;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const T w_square = gpu.Global(w)[i];
      const T u_square = gpu.Global(u)[i];
      const double of_w = std::sqrt(static_cast<double>(w_square));
      const double of_u = std::sqrt(static_cast<double>(u_square));
      double result = 1;
      if (of_w != 0 && of_u != 0) {
        result = coefficient * of_w / (of_u + weight_decay * of_w + epsilon);
      }
      gpu.Global(ratio)[i] = static_cast<T>(result);
    }
  }
};

// The formulas are those of RateFactor() in ops/defs/optimizer/rate_schedule.cc.
struct RateBody {
  RateCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t i = gpu.index(); i < call.count; i += gpu.stride()) {
      const int64_t step = gpu.Global(call.step)[i];
      gpu.Global(call.factor)[i] = static_cast<float>(Factor(step - 1));
    }
  }

  WEFT_GPU double Factor(int64_t step) const {
    if (step < call.warmup) {
      return static_cast<double>(step + 1) / static_cast<double>(call.warmup);
    }
    const double u = static_cast<double>(step - call.warmup);
    switch (call.curve) {
      case RateCurve::kStep:
        return std::pow(call.gamma, std::floor(u / static_cast<double>(call.every)));
      case RateCurve::kExponential:
        return std::pow(call.gamma, u);
      case RateCurve::kLinear:
        return 1 + (call.end - 1) * Progress(u);
      case RateCurve::kCosine:
        return CosineBetween(1, call.end, Progress(u));
      case RateCurve::kPolynomial:
        return call.end + (1 - call.end) * std::pow(1 - Progress(u), call.power);
      case RateCurve::kOneCycle: {
        constexpr double kFirst = 1.0 / 25;
        constexpr double kLast = kFirst * 1e-4;
        const double total = static_cast<double>(call.total);
        const double peak = 0.3 * total - 1;
        if (u <= peak) return CosineBetween(kFirst, 1, u / peak);
        const double length = total - 1 - peak;
        const double share = length > 0 ? (u - peak) / length : 1;
        return CosineBetween(1, kLast, share < 1 ? share : 1);
      }
      case RateCurve::kConstant:
        break;
    }
    return 1;
  }

 private:
  // The part of the decay that is behind step u after the warm-up, 0 to 1.
  WEFT_GPU double Progress(double u) const {
    const double length = static_cast<double>(call.total - call.warmup);
    const double share = length > 0 ? u / length : 1;
    return share < 1 ? share : 1;
  }
  // Of the way along half a cosine; share 0 to 1. (CUDA's cos of any double needs a stack.)
  WEFT_GPU static double CosineBetween(double from, double to, double share) {
#ifdef __CUDA_ARCH__
    const double cosine = cospi(share);
#else
    const double cosine = std::cos(3.14159265358979323846 * share);
#endif
    return to + (from - to) * (1 + cosine) / 2;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_OPTIMIZER_UPDATE_BODY_H_
