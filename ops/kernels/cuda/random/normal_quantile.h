// The quantile of the normal distribution with the bits of platform/random.h: the same operations,
// each rounded alone.
#ifndef WEFT_OPS_KERNELS_CUDA_RANDOM_NORMAL_QUANTILE_H_
#define WEFT_OPS_KERNELS_CUDA_RANDOM_NORMAL_QUANTILE_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// c0 + c1 x + ... + c7 x^7.
WEFT_GPU double SeventhDegree(double x, double c0, double c1, double c2, double c3, double c4,
                              double c5, double c6, double c7) {
  const double coefficients[8] = {c7, c6, c5, c4, c3, c2, c1, c0};
  double sum = 0;
  WEFT_UNROLL
  for (int i = 0; i < 8; ++i) sum = RoundedSum(RoundedProduct(sum, x), coefficients[i]);
  return sum;
}

// ln x: x = m 2^e, and ln m = 2 artanh((m - 1) / (m + 1)) as a series. REQUIRES: x is a positive
// normal number.
WEFT_GPU double PortableLog(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof(bits));
  int exponent = static_cast<int>(bits >> 52) - 1022;
  bits = (bits & 0x000fffffffffffffULL) | 0x3fe0000000000000ULL;  // in [0.5, 1)
  double mantissa;
  memcpy(&mantissa, &bits, sizeof(mantissa));
  if (mantissa < 0.707106781186547524401) {
    mantissa *= 2;
    --exponent;
  }
  const double s = RoundedSum(mantissa, -1.0) / RoundedSum(mantissa, 1.0);
  const double square = RoundedProduct(s, s);
  double sum = 0;
  WEFT_UNROLL
  for (int odd = 25; odd >= 1; odd -= 2) sum = RoundedSum(RoundedProduct(sum, square), 1.0 / odd);
  return RoundedSum(RoundedProduct(static_cast<double>(exponent), 0.693147180559945309417),
                    RoundedProduct(2 * s, sum));
}

// NormalQuantile of platform/random.h (Wichura: "Algorithm AS 241", Applied Statistics 37, 1988).
// REQUIRES: 0 < probability < 1, normal.
WEFT_GPU double QuantileOf(double probability) {
  const double center = RoundedSum(probability, -0.5);
  if (std::abs(center) <= 0.425) {
    const double r = RoundedSum(0.180625, -RoundedProduct(center, center));
    const double numerator =
        SeventhDegree(r, 3.3871328727963666080e0, 1.3314166789178437745e+2,
                      1.9715909503065514427e+3, 1.3731693765509461125e+4, 4.5921953931549871457e+4,
                      6.7265770927008700853e+4, 3.3430575583588128105e+4, 2.5090809287301226727e+3);
    const double denominator =
        SeventhDegree(r, 1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2,
                      5.3941960214247511077e+3, 2.1213794301586595867e+4, 3.9307895800092710610e+4,
                      2.8729085735721942674e+4, 5.2264952788528545610e+3);
    return RoundedProduct(center, numerator) / denominator;
  }
  const double tail = center < 0 ? probability : RoundedSum(1.0, -probability);
  const double root = std::sqrt(-PortableLog(tail));
  double quantile;
  if (root <= 5) {
    const double r = RoundedSum(root, -1.6);
    const double numerator = SeventhDegree(r, 1.42343711074968357734e0, 4.63033784615654529590e0,
                                           5.76949722146069140550e0, 3.64784832476320460504e0,
                                           1.27045825245236838258e0, 2.41780725177450611770e-1,
                                           2.27238449892691845833e-2, 7.74545014278341407640e-4);
    const double denominator = SeventhDegree(r, 1.0, 2.05319162663775882187e0,
                                             1.67638483018380384940e0, 6.89767334985100004550e-1,
                                             1.48103976427480074590e-1, 1.51986665636164571966e-2,
                                             5.47593808499534494600e-4, 1.05075007164441684324e-9);
    quantile = numerator / denominator;
  } else {
    const double r = RoundedSum(root, -5.0);
    const double numerator = SeventhDegree(r, 6.65790464350110377720e0, 5.46378491116411436990e0,
                                           1.78482653991729133580e0, 2.96560571828504891230e-1,
                                           2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                           2.71155556874348757815e-5, 2.01033439929228813265e-7);
    const double denominator = SeventhDegree(r, 1.0, 5.99832206555887937690e-1,
                                             1.36929880922735805310e-1, 1.48753612908506148525e-2,
                                             7.86869131145613259100e-4, 1.84631831751005468180e-5,
                                             1.42151175831644588870e-7, 2.04426310338993978564e-15);
    quantile = numerator / denominator;
  }
  return center < 0 ? -quantile : quantile;
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RANDOM_NORMAL_QUANTILE_H_
