// DataSet: samples of several inputs, in the job's order.
#ifndef WEFT_TRAINING_DATA_DATA_SET_H_
#define WEFT_TRAINING_DATA_DATA_SET_H_

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "executor/interfaces/input_source.h"
#include "platform/file_system.h"
#include "platform/mutex.h"
#include "training/data/data_column.h"
#include "training/data/data_spec.h"
#include "training/data/sample_transform.h"

namespace weft {

// What the batches of one program have in common.
struct BatchShape {
  int64_t batch = 0;   // samples of the global batch
  int64_t length = 0;  // that padded inputs have in it; 0: they always have the same

  auto operator<=>(const BatchShape&) const = default;
};

// Owns or maps the files' contents. Thread-safe: nothing that it answers changes.
class DataSet {
 public:
  // `files` outlives it. Errors: what the readers say; InvalidArgument naming both files when
  // sample counts differ, FailedPrecondition when a file is not the one the coordinator saw.
  static absl::StatusOr<std::shared_ptr<const DataSet>> Open(FileSystem& files,
                                                             const DataSpec& spec);

  // Of its share.
  int64_t samples() const { return rows_.empty() ? file_samples_ : row_count(); }
  // Where a sample of the share lies in the files. REQUIRES: 0 <= sample < samples().
  int64_t RowOf(int64_t sample) const {
    return rows_.empty() ? sample : rows_[static_cast<size_t>(sample)];
  }
  int64_t bytes() const;  // of this process, for all samples
  // The samples of an input, all of the files'; null when there is none.
  const DataColumn* Find(const std::string& input) const;
  // What is done to the samples of an input; null when nothing is.
  const SampleTransform* FindTransform(const std::string& input) const;
  // Whether the bytes of a column become amounts from 0 to 1 for a floating input. Labels do where
  // a sample has two or more axes, as an image; numbers and lists of them (yes or no as 1 and 0)
  // stay.
  bool ScalesBytes(const DataColumn& column) const;
  // Whether reading is worth threads of its own: decoding, augmentation, the disk.
  bool reading_is_work() const;
  // The spec with what opening found filled in: checksums, classes, mean and deviation.
  const DataSpec& spec() const { return spec_; }
  // Batches per epoch; the last may be short, unless the spec drops it.
  int64_t steps_per_epoch() const;
  int64_t last_batch() const;  // samples in it
  // Samples of the global batch of `step`.
  int64_t batch_of(int64_t step) const;
  // The length to which the samples of `step` are padded, where that is one of several: the least
  // that all of its samples fit, in all inputs; else 0.
  int64_t length_of(int64_t step) const;
  BatchShape shape_of(int64_t step) const { return {batch_of(step), length_of(step)}; }
  // Every shape that a step can have, whatever its epoch; the full batch of the longest first.
  std::vector<BatchShape> shapes() const;
  // Shape of a sample of an input in a step of this length (0: the longest). REQUIRES: Find(input)
  // is not null.
  Shape SampleShape(const std::string& input, int64_t length) const;
  // Whether a sample of the column may be given to an input of so many elements.
  bool HasSampleOf(const DataColumn& column, int64_t elements) const;
  // The samples of an epoch in their order; empty: 0, 1, ...
  std::vector<int64_t> MakeOrder(int64_t epoch) const;

 private:
  absl::Status AddColumn(FileSystem& files, DataSpec::File& file);
  absl::StatusOr<std::unique_ptr<DataColumn>> OpenFile(FileSystem& files,
                                                       const DataSpec::File& file) const;
  // Finds lengths_ and row_lengths_.
  absl::Status AddLengths();
  bool HasSeveralLengths(const DataColumn& column) const;
  int64_t LengthOfRow(int64_t row) const { return row_lengths_[static_cast<size_t>(row)]; }
  // Sorts stretches of the order by length, and shuffles their batches.
  void GroupLengths(uint64_t epoch, std::vector<int64_t>& order) const;
  // The rows of the training or the validation samples.
  absl::StatusOr<std::vector<int64_t>> Split(DataShare share) const;
  // Other files of the same spec must number their classes alike.
  void NoteClasses();
  absl::Status AddTransforms();
  int64_t row_count() const { return static_cast<int64_t>(rows_.size()); }

  DataSpec spec_;
  int64_t file_samples_ = 0;
  std::vector<int64_t> rows_;  // of the share, ascending; empty: all
  std::map<std::string, std::unique_ptr<DataColumn>> columns_;
  std::map<std::string, SampleTransform> transforms_;
  // Those that samples are padded to, ascending, where they are several; else empty. All inputs
  // that have several have these.
  std::vector<int64_t> lengths_;
  std::vector<int32_t> row_lengths_;  // of the samples in the files: the longest of all inputs
  mutable Mutex mutex_;
  // Of the steps of the epochs that were asked for last.
  mutable std::map<int64_t, std::vector<int64_t>> step_lengths_ ABSL_GUARDED_BY(mutex_);
};

// Checks that `input` can be fed: elements per sample agree, and the types can be converted.
absl::Status CheckInputFits(const DataSet& data, const FeedInput& input);

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_DATA_SET_H_
