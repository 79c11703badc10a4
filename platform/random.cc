#include "platform/random.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {
namespace {

constexpr uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }
constexpr uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

// The third counter word says what a block is for, so that one use never repeats the words of
// another.
enum class BlockUse : uint32_t { kValues = 0, kFold = 1, kName = 2 };

std::array<uint32_t, 4> UseBlock(const std::array<uint32_t, 2>& key, BlockUse use, uint64_t value) {
  return Philox4x32({Low(value), High(value), static_cast<uint32_t>(use), 0}, key);
}

// Words [first_word, first_word + 1], as one number; first_word is even.
uint64_t TwoWords(const std::array<uint32_t, 4>& block, size_t first_word) {
  return (uint64_t{block[first_word + 1]} << 32) | block[first_word];
}

// The natural logarithm by exactly rounded operations alone: x = m 2^e, and
// ln m = 2 artanh((m - 1) / (m + 1)) as a series in s^2 <= 0.0295. Relative error below 1e-15.
double PortableLog(double x) {
  constexpr double kLn2 = 0.693147180559945309417;
  constexpr double kSqrtHalf = 0.707106781186547524401;
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < kSqrtHalf) {
    mantissa *= 2;
    --exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  const double square = s * s;
  double sum = 0;
  for (int odd = 25; odd >= 1; odd -= 2) sum = sum * square + 1.0 / odd;
  return exponent * kLn2 + 2 * s * sum;
}

// coefficients[0] + coefficients[1] x + ...
double Polynomial(const std::array<double, 8>& coefficients, double x) {
  double sum = 0;
  for (size_t i = coefficients.size(); i-- > 0;) sum = sum * x + coefficients[i];
  return sum;
}

// The rational approximations of Algorithm AS 241, PPND16: center, middle and tail.
constexpr std::array<double, 8> kCenterNumerator = {
    3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
    1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
    3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr std::array<double, 8> kCenterDenominator = {1.0,
                                                      4.2313330701600911252e+1,
                                                      6.8718700749205790830e+2,
                                                      5.3941960214247511077e+3,
                                                      2.1213794301586595867e+4,
                                                      3.9307895800092710610e+4,
                                                      2.8729085735721942674e+4,
                                                      5.2264952788528545610e+3};
constexpr std::array<double, 8> kMiddleNumerator = {
    1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
    3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
    2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr std::array<double, 8> kMiddleDenominator = {1.0,
                                                      2.05319162663775882187e0,
                                                      1.67638483018380384940e0,
                                                      6.89767334985100004550e-1,
                                                      1.48103976427480074590e-1,
                                                      1.51986665636164571966e-2,
                                                      5.47593808499534494600e-4,
                                                      1.05075007164441684324e-9};
constexpr std::array<double, 8> kTailNumerator = {
    6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
    2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
    2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr std::array<double, 8> kTailDenominator = {1.0,
                                                    5.99832206555887937690e-1,
                                                    1.36929880922735805310e-1,
                                                    1.48753612908506148525e-2,
                                                    7.86869131145613259100e-4,
                                                    1.84631831751005468180e-5,
                                                    1.42151175831644588870e-7,
                                                    2.04426310338993978564e-15};

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1),
               High(product0) ^ counter[3] ^ key[1], Low(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

RandomKey::RandomKey(uint64_t seed, std::string_view stream) : words_({Low(seed), High(seed)}) {
  // The length first, then eight bytes at a time: different names give different sequences of
  // folds.
  const auto absorb = [this](uint64_t value) {
    const std::array<uint32_t, 4> block = UseBlock(words_, BlockUse::kName, value);
    words_ = {block[0], block[1]};
  };
  absorb(stream.size());
  for (size_t start = 0; start < stream.size(); start += 8) {
    uint64_t value = 0;
    for (size_t i = start; i < stream.size() && i < start + 8; ++i) {
      value |= uint64_t{static_cast<unsigned char>(stream[i])} << (8 * (i - start));
    }
    absorb(value);
  }
}

RandomKey RandomKey::Fold(uint64_t value) const {
  const std::array<uint32_t, 4> block = UseBlock(words_, BlockUse::kFold, value);
  return RandomKey({block[0], block[1]});
}

std::array<uint32_t, 4> RandomKey::Block(uint64_t index) const {
  return UseBlock(words_, BlockUse::kValues, index);
}

void FillUniform(const RandomKey& key, uint64_t first_index, float low, float high,
                 std::span<float> values) {
  const double width = static_cast<double>(high) - low;
  const float last = std::nextafterf(high, low);
  std::array<uint32_t, 4> block = {};
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t index = first_index + i;
    if (i == 0 || index % 4 == 0) block = key.Block(index / 4);
    const double unit = (block[index % 4] >> 8) * 0x1p-24;
    const float value = static_cast<float>(low + width * unit);
    values[i] = value < high ? value : last;  // Rounding to float can reach `high`.
  }
}

double NormalQuantile(double probability) {
  const double center = probability - 0.5;
  if (std::abs(center) <= 0.425) {
    const double r = 0.180625 - center * center;
    return center * Polynomial(kCenterNumerator, r) / Polynomial(kCenterDenominator, r);
  }
  const double tail = center < 0 ? probability : 1 - probability;
  const double r = std::sqrt(-PortableLog(tail));
  const double quantile =
      r <= 5 ? Polynomial(kMiddleNumerator, r - 1.6) / Polynomial(kMiddleDenominator, r - 1.6)
             : Polynomial(kTailNumerator, r - 5) / Polynomial(kTailDenominator, r - 5);
  return center < 0 ? -quantile : quantile;
}

void FillNormal(const RandomKey& key, uint64_t first_index, float mean, float standard_deviation,
                std::span<float> values) {
  std::array<uint32_t, 4> block = {};
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t index = first_index + i;
    if (i == 0 || index % 2 == 0) block = key.Block(index / 2);
    const uint64_t bits = TwoWords(block, 2 * (index % 2)) >> 11;
    // The middle of one of 2^53 equal parts of (0, 1); the last one would round to 1.
    const double unit = std::fmin((static_cast<double>(bits) + 0.5) * 0x1p-53, 1 - 0x1p-53);
    values[i] = static_cast<float>(mean + standard_deviation * NormalQuantile(unit));
  }
}

uint64_t RandomSequence::Next() {
  if (words_left_ == 0) {
    block_ = key_.Block(next_block_++);
    words_left_ = 4;
  }
  words_left_ -= 2;
  return TwoWords(block_, static_cast<size_t>(2 - words_left_));
}

uint64_t RandomSequence::Below(uint64_t bound) {
  // The high half of a 128-bit product; the few low halves that would make it uneven are drawn
  // again.
  __extension__ using Wide = unsigned __int128;
  const uint64_t uneven = (0 - bound) % bound;
  while (true) {
    const Wide product = static_cast<Wide>(Next()) * bound;
    if (static_cast<uint64_t>(product) >= uneven) return static_cast<uint64_t>(product >> 64);
  }
}

std::vector<int64_t> Permutation(const RandomKey& key, int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count > 0 ? count : 0));
  std::iota(order.begin(), order.end(), int64_t{0});
  RandomSequence sequence(key);
  for (size_t last = order.size(); last > 1; --last) {
    std::swap(order[last - 1], order[sequence.Below(last)]);
  }
  return order;
}

}  // namespace weft
