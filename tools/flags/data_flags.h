// DataFlags: the data set, the order of its samples, and their transformation.
#ifndef WEFT_TOOLS_FLAGS_DATA_FLAGS_H_
#define WEFT_TOOLS_FLAGS_DATA_FLAGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "tools/flags/named_files.h"
#include "training/data/data_set.h"

namespace weft {

// --batch auto[:MAX[:BASE]]: the batch is chosen after a measurement (tools/jobs/batch_choice.h).
struct AutoBatch {
  int64_t max = 0;     // 0 = any
  int64_t base = 128;  // that the learning rate is for, and with which is measured
};
// InvalidArgument showing the text, for what is neither "auto" nor "auto:MAX" nor "auto:MAX:BASE".
absl::StatusOr<AutoBatch> ParseAutoBatch(const std::string& text);

// Binds flags to itself (so it must outlive the parser's use of it) and turns them into a data
// set. All errors carry their exit code.
class DataFlags {
 public:
  // Files, and what the samples of training and of evaluation have in common. `required`: --data
  // is, and --labels where the job needs some (misses_labels).
  void AddFiles(CLI::App& app, bool required);
  // After AddFiles: the same for another `required`.
  void Require(CLI::App& app, bool required);
  // Lets --batch be "auto", too. After AddFiles.
  void AllowAutoBatch(CLI::App& app);
  // What training alone has.
  void AddTraining(CLI::App& app);

  bool has_data() const { return !data_.empty(); }
  bool misses_labels() const { return required_ && labels_.empty(); }
  bool has_validation() const { return validation_split_ > 0; }
  // With --batch auto the one to measure with.
  int64_t batch() const { return batch_; }
  const std::optional<AutoBatch>& auto_batch() const { return auto_batch_; }
  uint64_t seed() const { return seed_; }

  // The training samples, in a new order each epoch if `shuffle`; in batches of `batch`
  // instead of batch(), where it is not 0.
  absl::StatusOr<std::shared_ptr<const DataSet>> OpenTraining(bool shuffle,
                                                              int64_t batch = 0) const;
  absl::StatusOr<DataSpec> TrainingSpec(bool shuffle, int64_t batch = 0) const;
  // The samples that --validation-split holds out, or all where it was not given; in the order of
  // the files, not augmented. Mean and deviation of --normalize x=auto are those of the training
  // samples.
  absl::StatusOr<std::shared_ptr<const DataSet>> OpenValidation() const;

 private:
  absl::StatusOr<DataSpec> Spec() const;
  // The file of an input that a flag INPUT=VALUE names.
  absl::Status ForInput(DataSpec& spec, const std::string& flag, const std::string& text,
                        DataSpec::File*& file, std::string& value) const;
  absl::Status AddFormats(DataSpec& spec) const;
  absl::Status AddPadding(DataSpec& spec) const;
  absl::Status AddMasks(DataSpec& spec) const;
  absl::Status AddChanges(DataSpec& spec) const;
  absl::Status AddImageShape(DataSpec& spec) const;

  bool required_ = false;
  std::vector<std::string> data_;
  std::string labels_;
  int64_t batch_ = 128;
  std::optional<AutoBatch> auto_batch_;
  uint64_t seed_ = 0;
  bool no_scale_ = false;
  bool drop_last_ = false;
  std::vector<std::string> formats_;
  int64_t sequence_length_ = 128;
  int64_t stride_ = 0;
  std::string vocabulary_ = "bytes";
  std::string image_shape_;
  std::vector<std::string> classes_;
  std::vector<std::string> paddings_;
  std::vector<std::string> masks_;
  int64_t document_end_ = -1;
  bool group_lengths_ = false;
  std::vector<std::string> normalizations_;
  std::vector<std::string> augmentations_;
  double validation_split_ = 0;
  int prefetch_ = -1;
  int reader_threads_ = 2;
};

// Samples to measure a training on: those of other `files` (NAME=FILE[:PART] taken apart) and
// `labels`, read, numbered and normalized as `training` (a data set's own spec) does the files of
// the same inputs; without any, those that its validation_split holds out. Errors carry their exit
// code.
absl::StatusOr<std::shared_ptr<const DataSet>> OpenEvaluationData(
    const DataSpec& training, const std::vector<NamedFile>& files, const std::string& labels);

// Lines for people: held-out samples, classes by number, means and deviations. May be empty.
std::string DataNotes(const DataSet& data);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_DATA_FLAGS_H_
