// DataSpec: the options of a data set. A value that is sent to the
// workers as text; each opens the files itself.
#ifndef WEFT_TRAINING_DATA_DATA_SPEC_H_
#define WEFT_TRAINING_DATA_DATA_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// (value - mean) / deviation: one pair for all elements of a sample, or one for each entry of its
// axis 0 (the channels of an image, the features of a row).
struct Normalization {
  // Mean and deviation are those of the training samples; found when the coordinator opens the
  // data.
  bool automatic = false;
  std::vector<double> mean;
  std::vector<double> deviation;

  bool empty() const { return !automatic && mean.empty(); }
};

// A random change of a training image [H,W] or [C,H,W].
struct Augmentation {
  enum class Kind {
    kFlip,        // left and right, every other time
    kCrop,        // moved by up to `amount` pixels along both axes; zeros come in
    kBrightness,  // times a factor from [1 - amount, 1 + amount]
    kCutout,      // a square of `amount` pixels a side becomes 0, after normalization
  };
  Kind kind = Kind::kFlip;
  double amount = 0;
};

// "flip,crop:4,brightness:0.2,cutout:8". InvalidArgument names what is unknown or out of range.
absl::StatusOr<std::vector<Augmentation>> ParseAugmentations(const std::string& text);

// "0.5/0.25", "0.49,0.48,0.45/0.25,0.24,0.26" or "auto".
absl::StatusOr<Normalization> ParseNormalization(const std::string& text);

// How samples of different lengths become ones that a batch can hold: a sample is a list of
// numbers.
struct Padding {
  // Ascending; empty: all samples have one length. The samples of a step get the least of these
  // that its longest one fits.
  std::vector<int64_t> lengths;
  double value = 0;  // of the elements behind a sample's own
  bool cut = false;  // samples beyond the last length lose their end, instead of being an error

  bool empty() const { return lengths.empty(); }
  int64_t longest() const { return lengths.empty() ? 0 : lengths.back(); }
};

// LENGTH[,LENGTH...][:VALUE][:cut] or STEP..LONGEST[:VALUE][:cut]: "64", "16,32,64:-100",
// "16..128:0:cut". At most 64 lengths.
absl::StatusOr<Padding> ParsePadding(const std::string& text);

// The part of the samples that a data set is: what is held out for validation is the same samples
// for every seed, batch and number of workers.
enum class DataShare { kAll, kTraining, kValidation };

// All options of a data set. A value, sent to the workers as JSON.
struct DataSpec {
  struct File {
    std::string input;  // name of the graph input
    std::string path;   // of a file, a folder of images, or a pattern of shards ('*', '?')
    // What the coordinator found; a worker's file must have the same. 0 = not compared.
    uint64_t checksum = 0;
    std::string part{};  // what of it: columns, array, feature; empty = what the format has for one
    std::string format{};    // empty = told from name and contents
    bool is_labels = false;  // whether, of a file that holds both, the labels are meant
    Padding padding{};
    // Not read from a file: 1 where the samples of this other input have elements, 0 where they are
    // padded.
    std::string mask_of{};
    Normalization normalization{};
    std::vector<Augmentation> augmentations{};
  };
  std::vector<File> files;
  int64_t batch = 1;     // samples of a full global batch
  bool shuffle = false;  // a new order each epoch, from `seed`
  uint64_t seed = 0;
  // Bytes (idx images, uint8 arrays) become float32(byte) / 255 where a floating input wants them.
  bool scale_bytes = true;
  bool drop_last = false;  // leave out the short batch at the end of an epoch
  double validation_split = 0;
  DataShare share = DataShare::kAll;
  // Of text and token files: sample r is the elements from r * stride on; 0 = as the length.
  int64_t sequence_length = 128;
  int64_t stride = 0;
  // Of token files: what ends each document; a document is a sample then. -1 = windows.
  int64_t document_end = -1;
  // Shuffle so that the samples of a batch are of like lengths.
  bool group_lengths = false;
  std::string vocabulary = "bytes";  // or "characters", or a file
  // Channels, height and width that images get; empty = those of the first.
  std::vector<int64_t> image_shape;
  std::vector<std::string> classes;  // by number; empty = those of the data, sorted
  // Steps that rows are read ahead on threads; -1 = 2 where reading is work, else 0.
  int prefetch = -1;
  int reader_threads = 2;

  // The order of samples does not change with the number of workers, nor (but for group_lengths)
  // with `batch`.
  std::string ToJson() const;
  static absl::StatusOr<DataSpec> FromJson(const std::string& text);
};

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_DATA_SPEC_H_
