// The simple noise scale of the gradient: how many samples a batch needs until the noise of its
// gradient is as large as the gradient (McCandlish et al., "An Empirical Model of Large-Batch
// Training", 2018, section 2.2 and appendix A.1).
#ifndef WEFT_TRAINING_SCALING_NOISE_SCALE_H_
#define WEFT_TRAINING_SCALING_NOISE_SCALE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace weft {

// What a measuring step reports (noise_nodes.h). A step computes sums: micro-batch k yields the
// gradient g_k of the sum of its losses and the weight w_k of that sum (its samples, or its
// tokens, or the sum of their class weights).
struct NoiseSums {
  double micro_squares = 0;    // Q: the sum of |g_k|² / w_k over micro-batches with w_k > 0
  double whole_square = 0;     // |sum of g_k|², of the global batch
  double micro_batches = 0;    // K: those with w_k > 0
  double weight = 0;           // W: the sum of w_k
  int64_t samples = 0;         // N: of the global batch
  double gradient_factor = 1;  // that all g_k were multiplied with (a loss scale)
};

// One measurement. Both estimates are unbiased, so both may be below zero.
struct NoiseMeasurement {
  double variance = 0;  // tr(Sigma): of the gradient of one sample
  double square = 0;    // |G|²: of the gradient of the mean loss over all data
};

// With the model g_k = w_k G + noise, where the noise of micro-batches is independent, has mean 0
// and a covariance w_k C that grows with the weight, the expected values are
//   E |g_k|² / w_k            = w_k |G|² + tr(C)     so  E Q = W |G|² + K tr(C)
//   E R, R = |sum g_k|² / W   = W |G|² + tr(C)
// and so the estimates are
//   tr(C) = (Q - R) / (K - 1)        |G|² = (R - tr(C)) / W.
// With equal micro-batches of b samples and B = K b these are the paper's two-batch-size formulas,
//   |G|² = (B |G_B|² - b |G_b|²) / (B - b)      tr(Sigma) = (|G_b|² - |G_B|²) / (1/b - 1/B),
// where |G_b|² is the mean over the micro-batches of |g_k / b|², and |G_B|² is |sum g_k / B|². C is
// the covariance of a unit of weight; a sample weighs W / N, which makes tr(Sigma) = tr(C) N / W in
// the units of the gradient of a mean. Only the spread between micro-batches is looked at, so
// tokens of one sample may depend on each other.
//
// nullopt where there is nothing to compare (K < 2) or a number is not finite, as after an
// overflow.
std::optional<NoiseMeasurement> MeasureNoise(const NoiseSums& sums);

// Measurements of a run, averaged: variance and square apart, since the ratio of two noisy numbers
// is biased. A plain mean of the first kWindow, then an exponential one of about the last kWindow,
// because the noise scale grows while a model trains. A value. One thread at a time.
class NoiseAverage {
 public:
  static constexpr int64_t kWindow = 50;

  void Add(const NoiseMeasurement& measurement);
  int64_t count() const { return count_; }
  const NoiseMeasurement& mean() const { return mean_; }
  // In samples; nullopt before the first measurement, and where the averages are not both above
  // zero: the noise hides the gradient, or there is no noise.
  std::optional<double> scale() const;

  // To go on in a resumed run.
  void SaveState(std::map<std::string, double>& state) const;
  void LoadState(const std::map<std::string, double>& state);

 private:
  int64_t count_ = 0;
  NoiseMeasurement mean_;
};

// "noise scale about 312 samples, from 20 measurements: ..." and what it says about a batch of
// `batch` samples. Without a final stop.
std::string NoiseText(const NoiseAverage& noise, int64_t batch);

}  // namespace weft

#endif  // WEFT_TRAINING_SCALING_NOISE_SCALE_H_
