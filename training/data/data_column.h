// DataColumn: the samples of one graph input, wherever they lie.
#ifndef WEFT_TRAINING_DATA_DATA_COLUMN_H_
#define WEFT_TRAINING_DATA_DATA_COLUMN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensor/tensor.h"

namespace weft {

// The type and the size of the samples of a column.
struct ColumnInfo {
  std::string source;  // for messages: "iris.csv:0-3"
  int64_t samples = 0;
  DType dtype = DType::kInvalid;
  Shape sample_shape;
  uint64_t checksum = 0;                 // of what the samples are made of
  std::vector<std::string> class_names;  // where the elements are numbers of classes
  bool is_amount = true;                 // bytes stand for 0 to 1, not for tokens or classes
  // Samples are neighbours in one sequence: sample r shares elements with r + 1 to r + overlap.
  bool is_sequence = false;
  int64_t overlap = 0;
  // Where the samples have different lengths: of each, the elements before the padding. The sample
  // shape is [the longest that they are padded to]. Null: they have one length, or nobody asked.
  std::shared_ptr<const std::vector<int32_t>> lengths;
  bool is_work = false;    // reading a sample takes decoding, or the disk
  int64_t held_bytes = 0;  // of this process
};

// Immutable, so thread-safe. Reads one sample at a time, in any order.
class DataColumn {
 public:
  explicit DataColumn(ColumnInfo info);
  virtual ~DataColumn() = default;
  DataColumn(const DataColumn&) = delete;
  DataColumn& operator=(const DataColumn&) = delete;

  const ColumnInfo& info() const { return info_; }
  int64_t samples() const { return info_.samples; }
  DType dtype() const { return info_.dtype; }
  const Shape& sample_shape() const { return info_.sample_shape; }
  int64_t sample_elements() const { return sample_elements_; }
  int64_t sample_bytes() const { return sample_bytes_; }
  // [samples, sample shape], for messages.
  Shape shape() const;

  // Writes sample `row` to `target`, sample_bytes() in native byte order. REQUIRES: 0 <= row <
  // samples(). Errors name file and place.
  virtual absl::Status Read(int64_t row, void* target) const = 0;
  // Where the sample lies in memory, in native byte order but not aligned; null: read it.
  virtual const void* Peek(int64_t) const { return nullptr; }
  // All samples, where they are held so; else null.
  virtual const Tensor* tensor() const { return nullptr; }

 private:
  const ColumnInfo info_;
  const int64_t sample_elements_;
  const int64_t sample_bytes_;
};

// The rows of a tensor in memory. `info` needs no samples, type, shape, checksum or size. REQUIRES:
// rank >= 1.
std::unique_ptr<DataColumn> NewTensorColumn(ColumnInfo info, Tensor tensor);

// Memory that something keeps alive: a mapped file, or one unpacked.
struct SharedBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  bool is_mapped = false;
};

// Records of equal size, `stride` bytes apart; the sample is the sample shape's elements from
// `offset` on. DataLoss when the bytes are too few. `swap`: the elements are in the other byte
// order.
struct RecordLayout {
  size_t offset = 0;
  size_t stride = 0;
  bool swap = false;
};
absl::StatusOr<std::unique_ptr<DataColumn>> NewRecordColumn(ColumnInfo info, SharedBytes bytes,
                                                            RecordLayout layout);

// Sample r is `length` elements (tokens of `width` bytes) from r * stride + shift on; as many as
// there are with one token after each. InvalidArgument when there is none.
struct WindowLayout {
  int64_t length = 0;
  int64_t stride = 0;
  int64_t shift = 0;  // 0: the tokens; 1: the next ones
};
absl::StatusOr<std::unique_ptr<DataColumn>> NewWindowColumn(ColumnInfo info, SharedBytes tokens,
                                                            const WindowLayout& layout);

// Of up to 16 MiB: of all of it, or of blocks spread evenly over what is larger, and of the size.
uint64_t SampledChecksum(std::span<const std::byte> bytes);

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_DATA_COLUMN_H_
