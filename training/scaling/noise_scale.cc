#include "training/scaling/noise_scale.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {
namespace {

// Names in a job's record.
constexpr char kNoiseCount[] = "noise.count";
constexpr double kMaxCount = 1e15;
constexpr char kNoiseVariance[] = "noise.variance";
constexpr char kNoiseSquare[] = "noise.square";

// A batch is far from the noise scale where it is so many times smaller or larger.
constexpr double kFar = 4;

double StateOf(const std::map<std::string, double>& state, const char* name) {
  const auto found = state.find(name);
  return found == state.end() ? 0 : found->second;
}

}  // namespace

std::optional<NoiseMeasurement> MeasureNoise(const NoiseSums& sums) {
  if (!(sums.micro_batches >= 2) || !(sums.weight > 0) || sums.samples < 1) return std::nullopt;
  const double factor = sums.gradient_factor * sums.gradient_factor;
  const double apart = sums.micro_squares / factor;
  const double together = sums.whole_square / factor / sums.weight;
  const double unit_variance = (apart - together) / (sums.micro_batches - 1);
  NoiseMeasurement measured;
  measured.variance = unit_variance * static_cast<double>(sums.samples) / sums.weight;
  measured.square = (together - unit_variance) / sums.weight;
  if (!std::isfinite(measured.variance) || !std::isfinite(measured.square)) return std::nullopt;
  return measured;
}

void NoiseAverage::Add(const NoiseMeasurement& measurement) {
  ++count_;
  const double part = 1 / static_cast<double>(std::min(count_, kWindow));
  mean_.variance += part * (measurement.variance - mean_.variance);
  mean_.square += part * (measurement.square - mean_.square);
}

std::optional<double> NoiseAverage::scale() const {
  if (count_ == 0 || !(mean_.variance > 0) || !(mean_.square > 0)) return std::nullopt;
  return mean_.variance / mean_.square;
}

void NoiseAverage::SaveState(std::map<std::string, double>& state) const {
  if (count_ == 0) return;
  state[kNoiseCount] = static_cast<double>(count_);
  state[kNoiseVariance] = mean_.variance;
  state[kNoiseSquare] = mean_.square;
}

void NoiseAverage::LoadState(const std::map<std::string, double>& state) {
  // A file may say anything.
  const double count = StateOf(state, kNoiseCount);
  if (!(count >= 1 && count <= kMaxCount)) {
    *this = NoiseAverage();
    return;
  }
  count_ = static_cast<int64_t>(count);
  mean_ = {StateOf(state, kNoiseVariance), StateOf(state, kNoiseSquare)};
}

std::string NoiseText(const NoiseAverage& noise, int64_t batch) {
  if (noise.count() == 0) return "noise scale not known: no step has measured it";
  const std::string from = absl::StrCat("from ", noise.count(), " measurements");
  const std::optional<double> scale = noise.scale();
  if (!scale.has_value()) {
    return absl::StrCat("noise scale not known ", from, ": ",
                        noise.mean().square > 0
                            ? "the gradient has no noise to be seen"
                            : "the noise hides the gradient; measure more steps");
  }
  const double size = static_cast<double>(batch);
  std::string advice = absl::StrCat("this run's batch of ", batch, " is near it");
  if (size * kFar < *scale) {
    advice = absl::StrCat("this run's batch of ", batch,
                          " is far below it, so a larger one would "
                          "need fewer steps for few more samples");
  } else if (size > *scale * kFar) {
    advice = absl::StrCat("this run's batch of ", batch,
                          " is far above it, so a smaller one would "
                          "need fewer samples for few more steps");
  }
  return absl::StrCat(absl::StrFormat("noise scale about %.3g samples, ", *scale), from, ": ",
                      "batches far below it waste steps, far above it samples; ", advice);
}

}  // namespace weft
