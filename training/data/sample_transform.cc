#include "training/data/sample_transform.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "training/data/element_conversion.h"

namespace weft {
namespace {

constexpr size_t kMeasuredRows = size_t{1} << 14;

// Uniform in [0, 1), on 53 bits.
double Uniform(RandomSequence& random) {
  return static_cast<double>(random.Next() >> 11) * 0x1p-53;
}

// Uniform in -most, ..., most.
int64_t Offset(RandomSequence& random, double max_offset) {
  const auto bound = static_cast<int64_t>(max_offset);
  return static_cast<int64_t>(random.Below(static_cast<uint64_t>(2 * bound + 1))) - bound;
}

}  // namespace

int64_t NormalizedChannels(const Shape& shape) {
  return shape.rank() == 1 || shape.rank() == 3 ? shape.dim(0) : 1;
}

absl::StatusOr<SampleTransform> SampleTransform::Create(const DataSpec::File& file,
                                                        const Shape& shape, double max_value) {
  SampleTransform transform;
  transform.augmentations_ = file.augmentations;
  transform.max_ = static_cast<float>(max_value);
  const auto channels = static_cast<size_t>(NormalizedChannels(shape));
  const size_t means = file.normalization.mean.size();
  if (means > 1 && means != channels) {
    return absl::InvalidArgumentError(
        absl::StrCat("--normalize ", file.input, ": ", means, " means, but a sample ",
                     shape.ToString(), " has ", channels, " channels; give 1 or ", channels));
  }
  transform.planes_ = static_cast<int64_t>(channels);
  for (size_t i = 0; i < channels && means > 0; ++i) {
    const size_t at = means == 1 ? 0 : i;
    transform.mean_.push_back(static_cast<float>(file.normalization.mean[at]));
    transform.scale_.push_back(static_cast<float>(1 / file.normalization.deviation[at]));
  }
  if (file.augmentations.empty()) return transform;
  const int rank = shape.rank();
  if (rank != 2 && rank != 3) {
    return absl::InvalidArgumentError(absl::StrCat("--augment ", file.input, ": a sample is ",
                                                   shape.ToString(),
                                                   ", expected an image [H,W] or [C,H,W]"));
  }
  transform.height_ = shape.dim(rank - 2);
  transform.width_ = shape.dim(rank - 1);
  return transform;
}

void SampleTransform::Flip(std::span<float> sample) const {
  for (size_t row = 0; row < sample.size(); row += static_cast<size_t>(width_)) {
    const auto line = sample.subspan(row, static_cast<size_t>(width_));
    std::reverse(line.begin(), line.end());
  }
}

void SampleTransform::Move(std::span<float> sample, int64_t down, int64_t right,
                           std::vector<float>& scratch) const {
  scratch.assign(sample.begin(), sample.end());
  std::fill(sample.begin(), sample.end(), 0.0f);
  const int64_t top = std::max<int64_t>(0, down), left = std::max<int64_t>(0, right);
  const int64_t bottom = std::min(height_, height_ + down);
  const int64_t end = std::min(width_, width_ + right);
  for (int64_t plane = 0; plane < planes_ && left < end; ++plane) {
    for (int64_t y = top; y < bottom; ++y) {
      const int64_t from = (plane * height_ + y - down) * width_;
      std::copy(scratch.begin() + from + left - right, scratch.begin() + from + end - right,
                sample.begin() + (plane * height_ + y) * width_ + left);
    }
  }
}

void SampleTransform::CutOut(std::span<float> sample, int64_t size, RandomSequence& random) const {
  // The square's center is anywhere in the image (DeVries and Taylor, arXiv:1708.04552).
  const auto middle_y = static_cast<int64_t>(random.Below(static_cast<uint64_t>(height_)));
  const auto middle_x = static_cast<int64_t>(random.Below(static_cast<uint64_t>(width_)));
  const int64_t top = std::max<int64_t>(0, middle_y - size / 2);
  const int64_t bottom = std::min(height_, middle_y - size / 2 + size);
  const int64_t left = std::max<int64_t>(0, middle_x - size / 2);
  const int64_t right = std::min(width_, middle_x - size / 2 + size);
  for (int64_t plane = 0; plane < planes_; ++plane) {
    for (int64_t y = top; y < bottom; ++y) {
      const auto line = sample.begin() + (plane * height_ + y) * width_;
      std::fill(line + left, line + right, 0.0f);
    }
  }
}

void SampleTransform::Normalize(std::span<float> sample) const {
  const size_t plane = sample.size() / mean_.size();
  for (size_t channel = 0; channel < mean_.size(); ++channel) {
    for (float& value : sample.subspan(channel * plane, plane)) {
      value = (value - mean_[channel]) * scale_[channel];
    }
  }
}

void SampleTransform::Apply(std::span<float> sample, const RandomKey& key,
                            std::vector<float>& scratch) const {
  if (sample.empty()) return;
  for (size_t i = 0; i < augmentations_.size(); ++i) {
    const Augmentation& augmentation = augmentations_[i];
    RandomSequence random(key.Fold(i));
    if (augmentation.kind == Augmentation::Kind::kFlip) {
      if (random.Below(2) == 1) Flip(sample);
    } else if (augmentation.kind == Augmentation::Kind::kCrop) {
      const int64_t down = Offset(random, augmentation.amount);
      const int64_t right = Offset(random, augmentation.amount);
      Move(sample, down, right, scratch);
    } else if (augmentation.kind == Augmentation::Kind::kBrightness) {
      const auto factor = static_cast<float>(1 + augmentation.amount * (2 * Uniform(random) - 1));
      for (float& value : sample) {
        value *= factor;
        if (max_ > 0) value = std::min(value, max_);
      }
    }
  }
  if (!mean_.empty()) Normalize(sample);
  for (size_t i = 0; i < augmentations_.size(); ++i) {
    if (augmentations_[i].kind != Augmentation::Kind::kCutout) continue;
    RandomSequence random(key.Fold(i));
    CutOut(sample, static_cast<int64_t>(augmentations_[i].amount), random);
  }
}

absl::StatusOr<Normalization> MeasureNormalization(const DataColumn& column,
                                                   std::span<const int64_t> rows, bool scale) {
  const ConvertElements convert = FindConversion(column.dtype(), DType::kFloat64);
  if (convert == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("--normalize: '", column.info().source,
                                                   "' holds ", DTypeName(column.dtype()).data()));
  }
  const auto channels = static_cast<size_t>(NormalizedChannels(column.sample_shape()));
  std::vector<double> sums(channels), squares(channels), shifts(channels);
  std::vector<double> values(static_cast<size_t>(column.sample_elements()));
  std::vector<std::byte> raw(static_cast<size_t>(column.sample_bytes()));
  const size_t plane = values.size() / std::max<size_t>(1, channels);
  const size_t count = std::min(rows.size(), kMeasuredRows);
  for (size_t i = 0; i < count; ++i) {
    WEFT_RETURN_IF_ERROR(column.Read(rows[i * rows.size() / count], raw.data()));
    convert(raw.data(), values.data(), column.sample_elements(), scale);
    for (size_t channel = 0; channel < channels; ++channel) {
      // Around the first value, so that the difference of large squares loses nothing.
      if (i == 0 && plane > 0) shifts[channel] = values[channel * plane];
      for (size_t k = channel * plane; k < (channel + 1) * plane; ++k) {
        const double value = values[k] - shifts[channel];
        sums[channel] += value;
        squares[channel] += value * value;
      }
    }
  }
  Normalization found;
  const double elements = std::max(1.0, static_cast<double>(count * plane));
  for (size_t channel = 0; channel < channels; ++channel) {
    const double mean = sums[channel] / elements;
    const double deviation = std::sqrt(std::max(0.0, squares[channel] / elements - mean * mean));
    found.mean.push_back(mean + shifts[channel]);
    found.deviation.push_back(deviation > 0 ? deviation : 1);
    if (!std::isfinite(found.mean.back()) || !std::isfinite(deviation)) {
      return absl::InvalidArgumentError(absl::StrCat("--normalize: '", column.info().source,
                                                     "' holds values that are not finite"));
    }
  }
  return found;
}

}  // namespace weft
