#include "ops/kernels/cpu/fourier.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace weft::cpu {
namespace {

std::complex<double> Unit(double angle) { return {std::cos(angle), std::sin(angle)}; }

bool IsPowerOfTwo(int64_t n) { return (n & (n - 1)) == 0; }

}  // namespace

FourierTransform::FourierTransform(int64_t n, bool inverse) : n_(n), sign_(inverse ? 1.0 : -1.0) {
  const int64_t least = IsPowerOfTwo(n) ? n : 2 * n - 1;
  while (padded_ < least) padded_ *= 2;
  PrepareHalving();
  if (!IsPowerOfTwo(n)) PrepareChirps();
}

void FourierTransform::PrepareHalving() {
  reversed_.resize(static_cast<size_t>(padded_), 0);
  for (int64_t i = 1; i < padded_; ++i) {
    reversed_[i] = reversed_[i / 2] / 2 + (i % 2 == 0 ? 0 : padded_ / 2);
  }
  for (int64_t k = 0; k < padded_ / 2; ++k) {
    roots_.push_back(
        Unit(sign_ * 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(padded_)));
  }
}

void FourierTransform::PrepareChirps() {
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
  Halve(filter_.data(), false);
  for (Complex& value : filter_) value /= static_cast<double>(padded_);
}

void FourierTransform::Halve(Complex* line, bool backwards) const {
  for (int64_t i = 0; i < padded_; ++i) {
    if (i < reversed_[i]) std::swap(line[i], line[reversed_[i]]);
  }
  for (int64_t half = 1; half < padded_; half *= 2) {
    const int64_t step = padded_ / (2 * half);
    for (int64_t first = 0; first < padded_; first += 2 * half) {
      for (int64_t k = 0; k < half; ++k) {
        const Complex root = backwards ? std::conj(roots_[k * step]) : roots_[k * step];
        const Complex a = line[first + k];
        const Complex b = line[first + k + half];
        // Written out: the operator checks for infinities.
        const Complex turned(b.real() * root.real() - b.imag() * root.imag(),
                             b.real() * root.imag() + b.imag() * root.real());
        line[first + k] = a + turned;
        line[first + k + half] = a - turned;
      }
    }
  }
}

void FourierTransform::Run(Complex* line, Complex* scratch) const {
  if (chirp_.empty()) return Halve(line, false);
  for (int64_t i = 0; i < n_; ++i) scratch[i] = line[i] * chirp_[i];
  std::fill(scratch + n_, scratch + padded_, Complex(0));
  Halve(scratch, false);
  for (int64_t i = 0; i < padded_; ++i) scratch[i] *= filter_[i];
  Halve(scratch, true);
  for (int64_t i = 0; i < n_; ++i) line[i] = scratch[i] * chirp_[i];
}

}  // namespace weft::cpu
