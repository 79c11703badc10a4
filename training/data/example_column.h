// Columns of TFRecord shards of tf.train.Example.
#ifndef WEFT_TRAINING_DATA_EXAMPLE_COLUMN_H_
#define WEFT_TRAINING_DATA_EXAMPLE_COLUMN_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/file_system.h"
#include "training/data/data_column.h"
#include "training/data/data_spec.h"

namespace weft {

// Which feature of a tf.train.Example is read, and how.
struct ExampleOptions {
  std::string feature;
  std::vector<int64_t> image_shape;  // as for image folders
  Padding padding;                   // of lists; empty: all are as long as the first
  bool wants_lengths = false;        // ColumnInfo::lengths, for which every record is read once
};

// The feature of each record of the shards, in the order of the shards. int64_list gives int64,
// float_list float32; one value is a scalar, else [values]. bytes_list is an image file (uint8
// [C,H,W], decoded) or bytes (uint8 [bytes]). Only the framing is read here, unless lengths are
// wanted, a record when its sample is. Errors name shard and record.
absl::StatusOr<std::unique_ptr<DataColumn>> OpenExamples(FileSystem& files,
                                                         const std::vector<std::string>& shards,
                                                         const std::string& source,
                                                         const ExampleOptions& options);

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_EXAMPLE_COLUMN_H_
