// The discrete Fourier transform of one line of complex numbers.
#ifndef WEFT_OPS_KERNELS_CPU_FOURIER_H_
#define WEFT_OPS_KERNELS_CPU_FOURIER_H_

#include <complex>
#include <cstdint>
#include <vector>

namespace weft::cpu {

// y[k] = sum over i of x[i] exp(-2 pi j i k / n), or with plus for the inverse, which is not
// divided by n. Immutable; any n >= 1 in O(n log n): powers of two by halving (Cooley and Tukey,
// 1965), other sizes as a convolution of chirps (Bluestein, 1970).
class FourierTransform {
 public:
  FourierTransform(int64_t n, bool inverse);

  int64_t size() const { return n_; }
  // Complex numbers that Run wants for itself.
  int64_t scratch() const { return chirp_.empty() ? 0 : padded_; }
  void Run(std::complex<double>* line, std::complex<double>* scratch) const;

 private:
  using Complex = std::complex<double>;
  // Of `padded_` numbers; `backwards`: with the other sign.
  void Halve(Complex* line, bool backwards) const;
  void PrepareHalving();
  void PrepareChirps();

  int64_t n_;
  double sign_;         // of the exponent
  int64_t padded_ = 1;  // n, or the power of two in which chirps are convolved
  std::vector<int64_t> reversed_;
  std::vector<Complex> roots_;   // exp(sign 2 pi j k / padded), k < padded / 2
  std::vector<Complex> chirp_;   // exp(sign pi j k^2 / n); empty for powers of two
  std::vector<Complex> filter_;  // the transform of the chirps it is convolved with
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_FOURIER_H_
