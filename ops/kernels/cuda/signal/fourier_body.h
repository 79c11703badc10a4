// Bodies of Fourier transforms.
#ifndef WEFT_OPS_KERNELS_CUDA_SIGNAL_FOURIER_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_SIGNAL_FOURIER_BODY_H_

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/signal/fourier_calls.h"
#include "ops/kernels/cuda/signal/fourier_pass.h"

namespace weft::cuda {

inline constexpr int kFourierThreads = 256;

// Element i of a table of complex numbers.
template <typename S, class Gpu>
WEFT_GPU FourierNumber<S> TableNumber(Gpu& gpu, const void* table, int64_t i) {
  return gpu.Global(static_cast<const FourierNumber<S>*>(table))[i];
}

// Element i of a line of x, as the tensor has it. `first`: of the line, in numbers.
template <typename T, typename S, class Gpu>
WEFT_GPU FourierNumber<S> SignalNumber(Gpu& gpu, const FourierLines& lines, int64_t first,
                                       int64_t i) {
  FourierNumber<S> value = {S{0}, S{0}};
  if (i >= lines.from.count) return value;
  const auto x = gpu.Global(static_cast<const T*>(lines.x));
  const int64_t number = first + i * lines.from.step;
  if (lines.is_complex && lines.has_pairs) {
    const Packet<T, 2> pair = gpu.template Load<2>(x, 2 * number);
    value = {static_cast<S>(Widen(pair.values[0])), static_cast<S>(Widen(pair.values[1]))};
  } else {
    const T real = x[lines.is_complex ? 2 * number : number];
    value.values[0] = static_cast<S>(Widen(real));
    if (lines.is_complex) {
      const T imaginary = x[2 * number + 1];
      value.values[1] = static_cast<S>(Widen(imaginary));
    }
  }
  if (lines.window != nullptr) {
    const T weight = gpu.Global(static_cast<const T*>(lines.window))[i];
    value.values[0] *= static_cast<S>(Widen(weight));
    value.values[1] *= static_cast<S>(Widen(weight));
  }
  return value;
}

// Element i of what passes begin with: i < plan.size.
template <typename T, typename S, class Gpu>
WEFT_GPU FourierNumber<S> FirstNumber(Gpu& gpu, const FourierPlan& plan, const FourierLines& lines,
                                      int64_t line, int64_t i) {
  if (i >= plan.length) return {S{0}, S{0}};
  const int64_t first = lines.from.First(line);
  FourierNumber<S> value;
  if (lines.is_mirrored) {
    const bool is_mirror = i > plan.length / 2;
    const int64_t own = is_mirror ? plan.length - i : i;
    value = SignalNumber<T, S>(gpu, lines, first, own);
    if (own == 0 || 2 * own == plan.length) value.values[1] = 0;
    if (is_mirror) value.values[1] = -value.values[1];
  } else {
    value = SignalNumber<T, S>(gpu, lines, first, i);
  }
  if (plan.has_chirps) value = ProductOf(value, TableNumber<S>(gpu, plan.chirp, i));
  return value;
}

// Writes element i of a line of y: `value` is what passes end with.
template <typename T, typename S, class Gpu>
WEFT_GPU void WriteNumber(Gpu& gpu, const FourierPlan& plan, const FourierLines& lines,
                          int64_t line, int64_t i, FourierNumber<S> value) {
  if (plan.has_chirps) value = ProductOf(value, TableNumber<S>(gpu, plan.chirp, i));
  const auto y = gpu.Global(static_cast<T*>(lines.y));
  const auto factor = static_cast<S>(lines.factor);
  const int64_t number = lines.to.First(line) + i * lines.to.step;
  const Packet<T, 2> pair = {Narrow<T>(static_cast<Compute<T>>(value.values[0] * factor)),
                             Narrow<T>(static_cast<Compute<T>>(value.values[1] * factor))};
  if (lines.is_real) {
    y[number] = pair.values[0];
  } else if (lines.has_pairs) {
    gpu.Store(y, 2 * number, pair);
  } else {
    y[2 * number] = pair.values[0];
    y[2 * number + 1] = pair.values[1];
  }
}

// Numbers in shared memory. Passes by 4 take elements that are 4 apart (the last), or groups of 4
// that are 16 apart (the one before it): these bits of a place, added to its lowest without carry,
// put what threads take together into different banks, and leave neighbours what they are. `mask`:
// -1; 0 where elements lie as they come.
template <typename S, class Memory>
struct BankedNumbers {
  Memory memory;
  int32_t mask;

  WEFT_GPU decltype(auto) operator[](int32_t i) const { return memory[i ^ (Shift(i) & mask)]; }

 private:
  // Sixteen float32 pairs, or eight of float64, are one row of the banks.
  WEFT_GPU static int32_t Shift(int32_t i) {
    if constexpr (sizeof(S) == 4) {
      return ((i >> 4) & 3) * 5;
    } else {
      return ((i >> 3) & 3) | ((i >> 2) & 4);
    }
  }
};

// A block transforms `at_once` lines in shared memory, from one half of it to the other and back.
template <typename T, typename S>
struct FourierLinesBody {
  FourierPlan plan;
  FourierLines lines;
  int32_t at_once;
  int32_t mask;  // of BankedNumbers
  // Passes wait for shared memory: 48 registers, which float32 sums need, let five blocks take
  // turns.
  static constexpr int kMinBlocks = sizeof(S) == 4 ? 5 : 1;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t first = gpu.block() * at_once; first < lines.lines;
         first += gpu.blocks() * at_once) {
      const int64_t left = lines.lines - first;
      Transform(gpu, first, static_cast<int32_t>(left < at_once ? left : at_once));
    }
  }

 private:
  template <class Memory>
  WEFT_GPU BankedNumbers<S, Memory> Banked(Memory memory) const {
    return {memory, mask};
  }

  template <class Gpu>
  WEFT_GPU void Transform(Gpu& gpu, int64_t first, int32_t count) const {
    const auto size = static_cast<int32_t>(plan.size);
    const size_t half = sizeof(FourierNumber<S>) * static_cast<size_t>(size * at_once);
    auto from = Banked(gpu.template DynamicShared<FourierNumber<S>>(0));
    auto to = Banked(gpu.template DynamicShared<FourierNumber<S>>(half));
    // Neighbours read neighbours: of a line, or of lines that lie side by side.
    const bool is_across = lines.from.step != 1 && lines.from.inner == 1;
    for (int32_t e = gpu.thread(); e < size * count; e += gpu.threads()) {
      const int32_t line = is_across ? e % count : e / size;
      const int32_t i = is_across ? e / count : e - line * size;
      from[line * size + i] = FirstNumber<T, S>(gpu, plan, lines, first + line, i);
    }
    gpu.Barrier();
    RunPasses(gpu, plan.is_inverse && !plan.has_chirps, count, from, to);
    if (plan.has_chirps) {
      for (int32_t e = gpu.thread(); e < size * count; e += gpu.threads()) {
        const FourierNumber<S> value = from[e];
        from[e] = ProductOf(value, TableNumber<S>(gpu, plan.filter, e % size));
      }
      gpu.Barrier();
      RunPasses(gpu, true, count, from, to);
    }
    const auto bins = static_cast<int32_t>(lines.to.count);
    for (int32_t e = gpu.thread(); e < bins * count; e += gpu.threads()) {
      const int32_t line = is_across ? e % count : e / bins;
      const int32_t i = is_across ? e / count : e - line * bins;
      const FourierNumber<S> value = from[line * size + i];
      WriteNumber<T, S>(gpu, plan, lines, first + line, i, value);
    }
    gpu.Barrier();
  }

  // The result is in `from` again.
  template <class Gpu, class Memory>
  WEFT_GPU void RunPasses(Gpu& gpu, bool is_inverse, int32_t count, Memory& from,
                          Memory& to) const {
    for (int32_t p = 0; p < plan.passes; ++p) {
      const FourierPassRun<S> run = {plan.pass[p], plan.turns, is_inverse};
      RunPass<S>(gpu, run, from, to, static_cast<int32_t>(plan.size), count, gpu.thread(),
                 gpu.threads());
      gpu.Barrier();
      const Memory last = from;
      from = to;
      to = last;
    }
  }
};

// ---- Long lines, step by step through memory. `first` is the first line of a piece of `count`.

template <typename T, typename S>
struct LoadFourierLinesBody {
  FourierPlan plan;
  FourierLines lines;
  int64_t first;
  int64_t count;
  void* numbers;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(static_cast<FourierNumber<S>*>(numbers));
    for (int64_t e = gpu.index(); e < count * plan.size; e += gpu.stride()) {
      const int64_t line = e / plan.size;
      to[e] = FirstNumber<T, S>(gpu, plan, lines, first + line, e - line * plan.size);
    }
  }
};

template <typename S>
struct FourierPassBody {
  FourierPassRun<S> run;
  const void* from;
  void* to;
  int64_t size;
  int64_t lines;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    // The elements that a launch writes are others than those that it reads.
    const auto source = gpu.Global(static_cast<FourierNumber<S>*>(const_cast<void*>(from)));
    const auto target = gpu.Global(static_cast<FourierNumber<S>*>(to));
    RunPass<S>(gpu, run, source, target, size, lines, gpu.index(), gpu.stride());
  }
};

// The spectrum of a line of chirps times that of the filter.
struct FourierFilterBody {
  const void* filter;
  void* numbers;
  int64_t size;
  int64_t lines;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto own = gpu.Global(static_cast<FourierNumber<double>*>(numbers));
    for (int64_t e = gpu.index(); e < size * lines; e += gpu.stride()) {
      const FourierNumber<double> value = own[e];
      own[e] = ProductOf(value, TableNumber<double>(gpu, filter, e % size));
    }
  }
};

template <typename T, typename S>
struct StoreFourierLinesBody {
  FourierPlan plan;
  FourierLines lines;
  int64_t first;
  int64_t count;
  const void* numbers;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t bins = lines.to.count;
    for (int64_t e = gpu.index(); e < count * bins; e += gpu.stride()) {
      const int64_t line = e / bins;
      const int64_t i = e - line * bins;
      WriteNumber<T, S>(gpu, plan, lines, first + line, i,
                        TableNumber<S>(gpu, numbers, line * plan.size + i));
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_SIGNAL_FOURIER_BODY_H_
