// Random numbers as functions of key and index.
#ifndef WEFT_PLATFORM_RANDOM_H_
#define WEFT_PLATFORM_RANDOM_H_

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace weft {

// Random numbers as pure functions of (key, index): nothing depends on who asks first, on threads
// or on the number of workers. Only integer arithmetic and exactly rounded +, -, *, /, sqrt are
// used, so every machine gives the same bits. Not for secrets.

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011): a bijection of 128-bit counters for each 64-bit key, whose values pass as independent.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Names one endless sequence of random numbers. Cheap to copy.
//   const RandomKey key = RandomKey(seed, "dropout").Fold(node_id).Fold(step);
class RandomKey {
 public:
  // The key of a named stream of a job's seed; streams of other names or seeds are independent.
  RandomKey(uint64_t seed, std::string_view stream);

  // The key of the value-th branch of this one.
  RandomKey Fold(uint64_t value) const;

  // Four words, by number.
  std::array<uint32_t, 4> Block(uint64_t index) const;

  // The key of Philox4x32, for who computes blocks elsewhere: Block(i) is of the counter
  // {low half of i, high half, 0, 0}.
  const std::array<uint32_t, 2>& words() const { return words_; }

  friend bool operator==(const RandomKey&, const RandomKey&) = default;

 private:
  explicit RandomKey(std::array<uint32_t, 2> words) : words_(words) {}

  std::array<uint32_t, 2> words_;
};

// Writes elements [first_index, first_index + values.size()) of the sequence of `key`, uniform in
// [low, high), with 24 random bits each. Requires low < high, both finite.
void FillUniform(const RandomKey& key, uint64_t first_index, float low, float high,
                 std::span<float> values);

// As FillUniform, normally distributed: inverse of the distribution function on 53 random bits
// (Wichura: "Algorithm AS 241", Applied Statistics 37, 1988), so |value - mean| <= 8.3 standard
// deviations.
void FillNormal(const RandomKey& key, uint64_t first_index, float mean, float standard_deviation,
                std::span<float> values);

// The quantile of the standard normal distribution, relative error below 1e-14; 0 < probability
// < 1.
double NormalQuantile(double probability);

// Draws from the sequence of a key one after the other, for what is sequential by nature. Not
// thread-safe.
class RandomSequence {
 public:
  explicit RandomSequence(const RandomKey& key) : key_(key) {}

  uint64_t Next();

  // Uniform in [0, bound), without bias (Lemire: "Fast random integer generation in an interval",
  // ACM TOMACS 29, 2019). Requires bound > 0.
  uint64_t Below(uint64_t bound);

 private:
  RandomKey key_;
  uint64_t next_block_ = 0;
  std::array<uint32_t, 4> block_ = {};
  int words_left_ = 0;
};

// A random order of 0, 1, ..., count - 1, each equally likely (Fisher and Yates). For the order of
// the samples in epoch e: Permutation(RandomKey(seed, "shuffle").Fold(e), sample_count).
std::vector<int64_t> Permutation(const RandomKey& key, int64_t count);

}  // namespace weft

#endif  // WEFT_PLATFORM_RANDOM_H_
