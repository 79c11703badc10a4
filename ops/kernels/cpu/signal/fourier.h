// The discrete Fourier transform of one line of complex numbers.
#ifndef WEFT_OPS_KERNELS_CPU_SIGNAL_FOURIER_H_
#define WEFT_OPS_KERNELS_CPU_SIGNAL_FOURIER_H_

#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

namespace weft::cpu {

// y[k] = sum over i of x[i] exp(-2 pi j i k / n), or with plus for the inverse, which is not
// divided by n. Immutable; n >= 1 in O(n log n). S: float or double, in which the sums are taken.
//
// Sizes that are products of small numbers are taken apart factor by factor, in the order and with
// the sums of FFTPACK (Swarztrauber, 1982; Temperton, 1983), so that float32 rounds as in other
// libraries that descend from it. Other sizes become a convolution of chirps in double (Bluestein,
// 1970).
template <typename S>
class FourierTransform {
 public:
  using Complex = std::complex<S>;

  FourierTransform(int64_t n, bool inverse);

  int64_t size() const { return n_; }
  // Memory that Run wants for itself, aligned for doubles.
  size_t scratch_bytes() const;
  void Run(Complex* line, void* scratch) const;

 private:
  struct Pass {
    int64_t factor = 1;
    int64_t before = 1;          // product of the factors before
    int64_t after = 1;           // and behind
    std::vector<Complex> turns;  // [factor - 1][after]
  };

  void RunPass(const Pass& pass, const Complex* from, Complex* to) const;
  void PreparePasses(const std::vector<int64_t>& factors);
  void PrepareChirps();
  void RunChirps(Complex* line, std::complex<double>* scratch) const;

  int64_t n_;
  double sign_;  // of the exponent
  std::vector<Pass> passes_;
  // Only for sizes with a large prime factor:
  int64_t padded_ = 0;  // the power of two in which chirps are convolved
  std::vector<std::complex<double>> chirp_;
  std::vector<std::complex<double>> filter_;
  std::shared_ptr<const FourierTransform<double>> forward_;
  std::shared_ptr<const FourierTransform<double>> backward_;
};

extern template class FourierTransform<float>;
extern template class FourierTransform<double>;

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_SIGNAL_FOURIER_H_
