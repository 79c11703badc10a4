// The one-dimensional transforms of Winograd's convolution, for files that Highway compiles once
// per instruction set. `load(i)` gives an element, `store(i, value)` takes one; indices are
// constants once inlined. m outputs with windows of 3 are A^T [(G g) * (B^T d)].
#if defined(WEFT_OPS_KERNELS_CPU_CONV_WINOGRAD_TRANSFORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_OPS_KERNELS_CPU_CONV_WINOGRAD_TRANSFORMS_INL_H_
#undef WEFT_OPS_KERNELS_CPU_CONV_WINOGRAD_TRANSFORMS_INL_H_
#else
#define WEFT_OPS_KERNELS_CPU_CONV_WINOGRAD_TRANSFORMS_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The points of m = 4 are 0, A, -A, B, -B and infinity.
constexpr double kA = 0.625;
constexpr double kB = 1.5;
constexpr double kA2 = kA * kA;
constexpr double kB2 = kB * kB;

// B^T d: m + 2 inputs to m + 2 points.
template <int kTile>
struct InputTransform;

template <>
struct InputTransform<4> {
  template <class D, typename Load, typename Store>
  static HWY_INLINE void Line(D d, Load load, Store store) {
    const auto d1 = load(1), d2 = load(2), d3 = load(3), d4 = load(4);
    const auto a2 = hn::Set(d, static_cast<float>(kA2));
    const auto b2 = hn::Set(d, static_cast<float>(kB2));
    const auto sum = hn::Set(d, static_cast<float>(kA2 + kB2));
    const auto product = hn::Set(d, static_cast<float>(kA2 * kB2));
    store(0, hn::MulAdd(product, load(0), hn::NegMulAdd(sum, d2, d4)));
    store(5, hn::MulAdd(product, d1, hn::NegMulAdd(sum, d3, load(5))));
    const auto even_a = hn::NegMulAdd(b2, d2, d4);
    const auto odd_a = hn::NegMulAdd(b2, d1, d3);
    const auto a = hn::Set(d, static_cast<float>(kA));
    store(1, hn::MulAdd(a, odd_a, even_a));
    store(2, hn::NegMulAdd(a, odd_a, even_a));
    const auto even_b = hn::NegMulAdd(a2, d2, d4);
    const auto odd_b = hn::NegMulAdd(a2, d1, d3);
    const auto b = hn::Set(d, static_cast<float>(kB));
    store(3, hn::MulAdd(b, odd_b, even_b));
    store(4, hn::NegMulAdd(b, odd_b, even_b));
  }
};

template <>
struct InputTransform<2> {
  template <class D, typename Load, typename Store>
  static HWY_INLINE void Line(D, Load load, Store store) {
    const auto d1 = load(1), d2 = load(2);
    store(0, hn::Sub(load(0), d2));
    store(1, hn::Add(d1, d2));
    store(2, hn::Sub(d2, d1));
    store(3, hn::Sub(load(3), d1));
  }
};

// G g: a line of 3 of a filter to m + 2 points, in double.
template <int kTile>
struct Filter;

template <>
struct Filter<4> {
  template <class D, class V, typename Store>
  static HWY_INLINE void Line(D d, V g0, V g1, V g2, Store store) {
    store(0, hn::Mul(hn::Set(d, 1 / (kA2 * kB2)), g0));
    store(5, g2);
    const auto even_a = hn::MulAdd(hn::Set(d, kA2), g2, g0);
    const auto odd_a = hn::Mul(hn::Set(d, kA), g1);
    const auto scale_a = hn::Set(d, 1 / (2 * kA2 * (kA2 - kB2)));
    store(1, hn::Mul(scale_a, hn::Add(even_a, odd_a)));
    store(2, hn::Mul(scale_a, hn::Sub(even_a, odd_a)));
    const auto even_b = hn::MulAdd(hn::Set(d, kB2), g2, g0);
    const auto odd_b = hn::Mul(hn::Set(d, kB), g1);
    const auto scale_b = hn::Set(d, 1 / (2 * kB2 * (kB2 - kA2)));
    store(3, hn::Mul(scale_b, hn::Add(even_b, odd_b)));
    store(4, hn::Mul(scale_b, hn::Sub(even_b, odd_b)));
  }
};

template <>
struct Filter<2> {
  template <class D, class V, typename Store>
  static HWY_INLINE void Line(D d, V g0, V g1, V g2, Store store) {
    store(0, g0);
    store(3, g2);
    const auto half = hn::Set(d, 0.5);
    const auto even = hn::Add(g0, g2);
    store(1, hn::Mul(half, hn::Add(even, g1)));
    store(2, hn::Mul(half, hn::Sub(even, g1)));
  }
};

// A^T p: m + 2 points to m outputs.
template <int kTile>
struct OutputTransform;

template <>
struct OutputTransform<4> {
  template <class D, typename Load, typename Store>
  static HWY_INLINE void Line(D d, Load load, Store store) {
    const auto p1 = load(1), p2 = load(2), p3 = load(3), p4 = load(4);
    const auto sum_a = hn::Add(p1, p2), difference_a = hn::Sub(p1, p2);
    const auto sum_b = hn::Add(p3, p4), difference_b = hn::Sub(p3, p4);
    const auto set = [&](double value) HWY_ATTR { return hn::Set(d, static_cast<float>(value)); };
    store(0, hn::Add(hn::Add(load(0), sum_a), sum_b));
    store(1, hn::MulAdd(set(kB), difference_b, hn::Mul(set(kA), difference_a)));
    store(2, hn::MulAdd(set(kB2), sum_b, hn::Mul(set(kA2), sum_a)));
    store(3, hn::MulAdd(set(kB2 * kB), difference_b,
                        hn::MulAdd(set(kA2 * kA), difference_a, load(5))));
  }
};

template <>
struct OutputTransform<2> {
  template <class D, typename Load, typename Store>
  static HWY_INLINE void Line(D, Load load, Store store) {
    const auto p1 = load(1), p2 = load(2);
    store(0, hn::Add(hn::Add(load(0), p1), p2));
    store(1, hn::Add(hn::Sub(p1, p2), load(3)));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
