// SampleTransform: augmentation and normalization of one input's samples.
#ifndef WEFT_TRAINING_DATA_SAMPLE_TRANSFORM_H_
#define WEFT_TRAINING_DATA_SAMPLE_TRANSFORM_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/random.h"
#include "tensor/shape.h"
#include "training/data/data_column.h"
#include "training/data/data_spec.h"

namespace weft {

// In this order: flips, crops and brightness as they were given; normalization; cutouts, so that
// what is cut out is the mean. Immutable, so thread-safe.
class SampleTransform {
 public:
  // For samples of `shape`: [W] or any other without augmentation, [H,W] or [C,H,W] with it.
  // `max_value`: what brightness may not pass; 0 = no bound. InvalidArgument names `input` and what
  // does not fit.
  static absl::StatusOr<SampleTransform> Create(const DataSpec::File& file, const Shape& shape,
                                                double max_value);

  bool empty() const { return augmentations_.empty() && mean_.empty(); }
  // Changes a sample of the shape in place. `key` is the sample's own: the same key and the same
  // augmentations of two inputs (an image and its mask) draw the same numbers.
  void Apply(std::span<float> sample, const RandomKey& key, std::vector<float>& scratch) const;

 private:
  SampleTransform() = default;
  void Flip(std::span<float> sample) const;
  void Move(std::span<float> sample, int64_t down, int64_t right,
            std::vector<float>& scratch) const;
  void CutOut(std::span<float> sample, int64_t size, RandomSequence& random) const;
  void Normalize(std::span<float> sample) const;

  std::vector<Augmentation> augmentations_;
  std::vector<float> mean_;
  std::vector<float> scale_;  // 1 / deviation
  int64_t planes_ = 1;
  int64_t height_ = 1;
  int64_t width_ = 1;
  float max_ = 0;
};

// Entries of axis 0 that have a mean of their own: those of [F] and [C,H,W], one for all else.
int64_t NormalizedChannels(const Shape& shape);

// Mean and deviation (of the population; 1 where all values are equal) of the rows given, of at
// most 2^14 of them, evenly spread. `scale`: as of the values divided by 255.
absl::StatusOr<Normalization> MeasureNormalization(const DataColumn& column,
                                                   std::span<const int64_t> rows, bool scale);

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_SAMPLE_TRANSFORM_H_
