// Columns of samples of different lengths, padded to one.
#ifndef WEFT_TRAINING_DATA_RAGGED_COLUMN_H_
#define WEFT_TRAINING_DATA_RAGGED_COLUMN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensor/tensor.h"
#include "training/data/data_column.h"
#include "training/data/data_spec.h"

namespace weft {

// Lists of numbers, one for each sample, in one piece of memory.
struct RaggedLists {
  SharedBytes values;
  DType dtype = DType::kInvalid;  // of the values there
  std::vector<int64_t> begins;    // by sample: where its first value is
  std::vector<int64_t> lengths;   // by sample
};

// List i ends where `ends[i]` says, and the next begins. `values` is of rank 1.
RaggedLists ListsOfEnds(const Tensor& values, const std::vector<int64_t>& ends);

// Documents, each ended by a token `end`, which the last may lack; empty ones are left out. `next`:
// of each token the one after it, `end` at last, else the tokens without `end`.
RaggedLists SplitDocuments(SharedBytes tokens, DType dtype, int64_t end, bool next);

// A sample is a list and, behind it, as many padding values as the longest padded length wants. The
// elements are int64 where the values are integers, else as these. `info` needs no samples, type,
// shape, lengths, checksum or size. InvalidArgument: there is no list; one is longer than the
// longest length, unless the padding cuts; the lengths differ and there is no padding.
absl::StatusOr<std::unique_ptr<DataColumn>> NewRaggedColumn(ColumnInfo info, RaggedLists lists,
                                                            const Padding& padding);

// 1 (int64) where a sample of `other` has its own elements, 0 where it is padded. InvalidArgument
// when its samples have no lengths of their own.
absl::StatusOr<std::unique_ptr<DataColumn>> NewMaskColumn(const DataColumn& other);

// InvalidArgument when elements of this type cannot have the value.
absl::Status CheckPadValue(const std::string& source, DType dtype, double value);

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_RAGGED_COLUMN_H_
