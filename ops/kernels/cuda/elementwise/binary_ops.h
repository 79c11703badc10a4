// Functions of two elements: functors for BinaryBody, and folds for VariadicBody. Formulas are
// those of the CPU's kernels (ops/kernels/cpu/elementwise).
#ifndef WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_BINARY_OPS_H_
#define WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_BINARY_OPS_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/elementwise/elementwise_launch.h"
#include "ops/kernels/cuda/elementwise/unary_ops.h"
#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

// Whole numbers of these operators are unsigned: sums, products and bits do not know the sign.
struct AddOp {
  template <typename C>
  WEFT_GPU C operator()(C a, C b) const {
    return static_cast<C>(a + b);
  }
};
struct SubOp {
  template <typename C>
  WEFT_GPU C operator()(C a, C b) const {
    return static_cast<C>(a - b);
  }
};
struct MulOp {
  template <typename C>
  WEFT_GPU C operator()(C a, C b) const {
    // uint16_t would be promoted to a signed int, which overflows.
    if constexpr (std::is_integral_v<C> && sizeof(C) < 4) {
      return static_cast<C>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
    } else {
      return static_cast<C>(a * b);
    }
  }
};
struct DivOp {
  template <typename C>
  WEFT_GPU C operator()(C a, C b) const {
    return a / b;
  }
};

// ---- Divisions of whole numbers: a divisor of 0 is reported, and gives 0.

struct Divisors {
  FaultReport report;
  int64_t first = 0;  // place in B of the launch's first divisor

  template <class Gpu, typename C>
  WEFT_GPU bool CanDivide(Gpu& gpu, C divisor, int64_t place) const {
    if (divisor != 0) return true;
    InRange(gpu, report, 0, first + place);
    return false;
  }
};

enum class WholeDivision : uint8_t { kQuotient, kRest, kTruncatedRest };

// The quotient, towards zero: the smallest by -1 wraps around. Or the rest, which has the sign of
// the divisor, or of the dividend.
struct WholeDivisionOp {
  static constexpr bool kReports = true;
  static constexpr bool kIsRare = true;
  Divisors divisors;
  WholeDivision kind = WholeDivision::kQuotient;

  template <class Gpu, typename C>
  WEFT_GPU C operator()(Gpu& gpu, C a, C b, int64_t place) const {
    if (!divisors.CanDivide(gpu, b, place)) return 0;
    if constexpr (std::is_signed_v<C>) {
      if (b == -1) {  // the smallest by -1 overflows
        return kind == WholeDivision::kQuotient
                   ? static_cast<C>(uint64_t{0} - static_cast<uint64_t>(a))
                   : C{0};
      }
    }
    const C quotient = static_cast<C>(a / b);
    if (kind == WholeDivision::kQuotient) return quotient;
    const C rest = static_cast<C>(a - quotient * b);
    const bool moves =
        kind == WholeDivision::kRest && rest != 0 && IsNegative(rest) != IsNegative(b);
    return moves ? static_cast<C>(rest + b) : rest;
  }
};

template <bool kTruncated>
struct ModOp {
  template <typename C>
  WEFT_GPU C operator()(C a, C b) const {
    const C rest = std::fmod(a, b);
    if (kTruncated) return rest;
    if (rest == 0) return std::copysign(C{0}, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
  }
};

struct PReluOp {
  template <typename C>
  WEFT_GPU C operator()(C x, C slope) const {
    return IsNegative(x) ? MulOp()(x, slope) : x;
  }
};

// The Swish of the gate times the value.
struct SwiGluOp {
  FunctionParameters p;  // a: alpha
  template <typename C>
  WEFT_GPU C operator()(C gate, C value) const {
    return gate / (1 + std::exp(-static_cast<C>(p.a) * gate)) * value;
  }
};

// ---- Bits. Truth values are 0 and 1.

enum class BitLogic : uint8_t { kAnd, kOr, kXor };

struct BitLogicOp {
  BitLogic logic = BitLogic::kAnd;
  template <typename C>
  WEFT_GPU C operator()(C a, C b) const {
    if (logic == BitLogic::kAnd) return static_cast<C>(a & b);
    return static_cast<C>(logic == BitLogic::kOr ? a | b : a ^ b);
  }
};

// Bits shifted in from the right are 0, from the left copies of the sign. A count outside of the
// width, such as a negative one, shifts all of them.
struct ShiftOp {
  static constexpr bool kIsRare = true;
  bool left = true;
  template <typename C>
  WEFT_GPU C operator()(C value, C count) const {
    const bool all = IsNegative(count) || static_cast<uint64_t>(count) >= 8 * sizeof(C);
    if (left) return all ? C{0} : static_cast<C>(static_cast<uint64_t>(value) << count);
    if (all) return IsNegative(value) ? static_cast<C>(-1) : C{0};
    return static_cast<C>(value >> count);
  }
};

// ---- Comparisons.

// a < b, a == b, or one of the two. False for NaN.
struct ComparisonOp {
  bool less = false;
  bool equal = false;
  template <typename C>
  WEFT_GPU uint8_t operator()(C a, C b) const {
    return (less && a < b) || (equal && a == b) ? 1 : 0;
  }
};

// ---- Folds of any number of operands.

// The sum of all, times `share`: 1, or for a mean 1 / operands.
struct SumOfOperands {
  double share = 1;
  template <typename C>
  WEFT_GPU C operator()(C a, C b) const {
    return a + b;
  }
  template <typename C>
  WEFT_GPU C Last(C total) const {
    return total * static_cast<C>(share);
  }
};
// The largest, or the smallest. NaN wins, as in every reduction.
struct ExtremeFold {
  bool smallest = false;
  template <typename C>
  WEFT_GPU C operator()(C a, C b) const {
    return (smallest ? b < a : b > a) || b != b ? b : a;
  }
  template <typename C>
  WEFT_GPU C Last(C total) const {
    return total;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_BINARY_OPS_H_
