#include "ops/kernels/cpu/signal/fourier.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace weft::cpu {
namespace {

constexpr int64_t kLargestFactor = 5;

std::complex<double> Unit(double angle) { return {std::cos(angle), std::sin(angle)}; }

// The factors of n in the order of the passes; empty when one is too large.
std::vector<int64_t> SmallFactors(int64_t n) {
  std::vector<int64_t> factors;
  while (n % 4 == 0) {
    factors.push_back(4);
    n /= 4;
  }
  if (n % 2 == 0) {
    factors.push_back(2);
    n /= 2;
    std::swap(factors.front(), factors.back());
  }
  for (int64_t divisor = 3; divisor <= kLargestFactor; divisor += 2) {
    for (; n % divisor == 0; n /= divisor) factors.push_back(divisor);
  }
  if (n > 1) factors.clear();
  return factors;
}

// Written out: the operator of the standard library looks for infinities.
template <typename S>
std::complex<S> Times(std::complex<S> a, std::complex<S> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

// out[0 .. factor) = the transform of in[0 .. factor); `sign` is that of the exponent.
template <typename S>
void Transform2(const std::complex<S>* in, std::complex<S>* out) {
  out[0] = in[0] + in[1];
  out[1] = in[0] - in[1];
}

template <typename S>
void Transform3(const std::complex<S>* in, S sign, std::complex<S>* out) {
  const S cosine = S(-0.5);
  const S sine = sign * static_cast<S>(0.86602540378443864676);
  const std::complex<S> sum = in[1] + in[2];
  const std::complex<S> difference = in[1] - in[2];
  out[0] = in[0] + sum;
  const std::complex<S> even(in[0].real() + cosine * sum.real(),
                             in[0].imag() + cosine * sum.imag());
  const std::complex<S> odd(-sine * difference.imag(), sine * difference.real());
  out[1] = even + odd;
  out[2] = even - odd;
}

template <typename S>
void Transform4(const std::complex<S>* in, S sign, std::complex<S>* out) {
  const std::complex<S> a = in[0] + in[2];
  const std::complex<S> b = in[0] - in[2];
  const std::complex<S> c = in[1] + in[3];
  const std::complex<S> d = in[1] - in[3];
  const std::complex<S> turned(-sign * d.imag(), sign * d.real());
  out[0] = a + c;
  out[1] = b + turned;
  out[2] = a - c;
  out[3] = b - turned;
}

template <typename S>
void Transform5(const std::complex<S>* in, S sign, std::complex<S>* out) {
  const S cosine[] = {static_cast<S>(0.3090169943749474241),
                      static_cast<S>(-0.8090169943749474241)};
  const S sine[] = {sign * static_cast<S>(0.95105651629515357212),
                    sign * static_cast<S>(0.58778525229247312917)};
  const std::complex<S> sum1 = in[1] + in[4];
  const std::complex<S> difference1 = in[1] - in[4];
  const std::complex<S> sum2 = in[2] + in[3];
  const std::complex<S> difference2 = in[2] - in[3];
  out[0] = in[0] + sum1 + sum2;
  const auto pair = [&](S c1, S c2, S s1, S s2, int k) {
    const std::complex<S> even(in[0].real() + c1 * sum1.real() + c2 * sum2.real(),
                               in[0].imag() + c1 * sum1.imag() + c2 * sum2.imag());
    const std::complex<S> odd(-(s1 * difference1.imag() + s2 * difference2.imag()),
                              s1 * difference1.real() + s2 * difference2.real());
    out[k] = even + odd;
    out[5 - k] = even - odd;
  };
  pair(cosine[0], cosine[1], sine[0], sine[1], 1);
  pair(cosine[1], cosine[0], sine[1], -sine[0], 2);
}

}  // namespace

template <typename S>
FourierTransform<S>::FourierTransform(int64_t n, bool inverse)
    : n_(n), sign_(inverse ? 1.0 : -1.0) {
  const std::vector<int64_t> factors = SmallFactors(n);
  if (n == 1) return;
  if (factors.empty()) {
    PrepareChirps();
  } else {
    PreparePasses(factors);
  }
}

template <typename S>
void FourierTransform<S>::PreparePasses(const std::vector<int64_t>& factors) {
  int64_t before = 1;
  for (const int64_t factor : factors) {
    Pass& pass = passes_.emplace_back();
    pass.factor = factor;
    pass.before = before;
    pass.after = n_ / before / factor;
    for (int64_t j = 1; j < factor; ++j) {
      for (int64_t i = 0; i < pass.after; ++i) {
        const double angle = sign_ * 2 * std::numbers::pi * static_cast<double>(j * before * i) /
                             static_cast<double>(n_);
        pass.turns.push_back(Complex(Unit(angle)));
      }
    }
    before *= factor;
  }
}

template <typename S>
void FourierTransform<S>::RunPass(const Pass& pass, const Complex* from, Complex* to) const {
  Complex in[kLargestFactor];
  Complex out[kLargestFactor];
  const S sign = static_cast<S>(sign_);
  for (int64_t k = 0; k < pass.before; ++k) {
    for (int64_t i = 0; i < pass.after; ++i) {
      for (int64_t j = 0; j < pass.factor; ++j)
        in[j] = from[i + pass.after * (j + pass.factor * k)];
      switch (pass.factor) {
        case 2:
          Transform2(in, out);
          break;
        case 3:
          Transform3(in, sign, out);
          break;
        case 4:
          Transform4(in, sign, out);
          break;
        default:
          Transform5(in, sign, out);
      }
      to[i + pass.after * k] = out[0];
      for (int64_t j = 1; j < pass.factor; ++j) {
        const Complex turned =
            i == 0 ? out[j] : Times(out[j], pass.turns[(j - 1) * pass.after + i]);
        to[i + pass.after * (k + pass.before * j)] = turned;
      }
    }
  }
}

template <typename S>
void FourierTransform<S>::PrepareChirps() {
  padded_ = 1;
  while (padded_ < 2 * n_ - 1) padded_ *= 2;
  forward_ = std::make_shared<FourierTransform<double>>(padded_, false);
  backward_ = std::make_shared<FourierTransform<double>>(padded_, true);
  for (int64_t k = 0; k < n_; ++k) {
    // The angle repeats every 2 n; the product of k with itself must not lose digits.
    const int64_t square = k * k % (2 * n_);
    chirp_.push_back(
        Unit(sign_ * std::numbers::pi * static_cast<double>(square) / static_cast<double>(n_)));
  }
  filter_.resize(static_cast<size_t>(padded_));
  for (int64_t k = 0; k < n_; ++k) {
    filter_[k] = std::conj(chirp_[k]);
    if (k > 0) filter_[padded_ - k] = std::conj(chirp_[k]);
  }
  std::vector<std::complex<double>> scratch(static_cast<size_t>(padded_));
  forward_->Run(filter_.data(), scratch.data());
  for (std::complex<double>& value : filter_) value /= static_cast<double>(padded_);
}

template <typename S>
void FourierTransform<S>::RunChirps(Complex* line, std::complex<double>* scratch) const {
  std::complex<double>* const own = scratch;
  std::complex<double>* const rest = scratch + padded_;
  for (int64_t i = 0; i < n_; ++i) own[i] = Times(std::complex<double>(line[i]), chirp_[i]);
  std::fill(own + n_, own + padded_, std::complex<double>(0));
  forward_->Run(own, rest);
  for (int64_t i = 0; i < padded_; ++i) own[i] = Times(own[i], filter_[i]);
  backward_->Run(own, rest);
  for (int64_t i = 0; i < n_; ++i) line[i] = Complex(Times(own[i], chirp_[i]));
}

template <typename S>
size_t FourierTransform<S>::scratch_bytes() const {
  if (padded_ > 0) return 2 * static_cast<size_t>(padded_) * sizeof(std::complex<double>);
  return static_cast<size_t>(n_) * sizeof(Complex);
}

template <typename S>
void FourierTransform<S>::Run(Complex* line, void* scratch) const {
  if (padded_ > 0) return RunChirps(line, static_cast<std::complex<double>*>(scratch));
  Complex* from = line;
  Complex* to = static_cast<Complex*>(scratch);
  for (const Pass& pass : passes_) {
    RunPass(pass, from, to);
    std::swap(from, to);
  }
  if (from != line) std::copy_n(from, n_, line);
}

template class FourierTransform<float>;
template class FourierTransform<double>;

}  // namespace weft::cpu
