// DataSet: samples of several inputs, in the job's order.
#ifndef WEFT_TRAINING_DATA_SET_H_
#define WEFT_TRAINING_DATA_SET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/input_source.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"

namespace weft {

// Which files, in what order. Travels to the workers as text; each opens the files itself.
struct DataSpec {
  struct File {
    std::string input;  // name of the graph input
    std::string path;
    // What the coordinator found; a worker's file must have the same. Empty shape checksum = not
    // compared.
    uint64_t checksum = 0;
  };
  std::vector<File> files;
  int64_t batch = 1;     // samples of a full global batch
  bool shuffle = false;  // a new order each epoch, from `seed`
  uint64_t seed = 0;
  // Bytes (idx images, uint8 arrays) become float32(byte) / 255 where a floating input wants them.
  bool scale_bytes = true;
  // The order of samples does not change with `batch` or the number of workers.
  std::string ToJson() const;
  static absl::StatusOr<DataSpec> FromJson(const std::string& text);
};

// Owns the files' contents. Immutable, so thread-safe.
class DataSet {
 public:
  // Errors: what ReadDataFile says; InvalidArgument naming both files when sample counts differ,
  // FailedPrecondition when a file is not the one the coordinator saw.
  static absl::StatusOr<std::shared_ptr<const DataSet>> Open(FileSystem& files,
                                                             const DataSpec& spec);

  int64_t samples() const { return samples_; }
  int64_t bytes() const;  // of all tensors
  // The raw tensor of an input; null when there is none.
  const Tensor* Find(const std::string& input) const;
  // The spec with checksums filled in.
  const DataSpec& spec() const { return spec_; }
  // Batches per epoch; the last may be short.
  int64_t steps_per_epoch() const;
  int64_t last_batch() const;  // samples in it
  // Samples of the global batch of `step`.
  int64_t batch_of(int64_t step) const;

 private:
  DataSpec spec_;
  int64_t samples_ = 0;
  std::map<std::string, Tensor> tensors_;
};

// Rows of the data set. One thread uses it.
std::unique_ptr<InputSource> NewDataSetSource(std::shared_ptr<const DataSet> data);

// Checks that `input` can be fed: elements per sample agree, and the types can be converted.
absl::Status CheckInputFits(const DataSet& data, const FeedInput& input);

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_SET_H_
