// TFRecord framing, which TensorBoard's event files share: length (uint64), masked CRC-32C of these
// eight bytes, payload, its masked CRC-32C; all numbers with their lowest byte first.
// https://www.tensorflow.org/tutorials/load_data/tfrecord
#ifndef WEFT_TRAINING_RECORDS_RECORD_FILE_H_
#define WEFT_TRAINING_RECORDS_RECORD_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// Where a record's payload lies in its file, and the checksum that the file has for it.
struct RecordPlace {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint32_t checksum = 0;
};

// Walks a file's lengths, checking each, without a look at the payloads. DataLoss names the record
// and its offset.
absl::StatusOr<std::vector<RecordPlace>> FindRecords(std::string_view file,
                                                     const std::string& name);

// A payload, checked. `file` is the one that `place` was found in.
absl::StatusOr<std::string_view> ReadRecord(std::string_view file, const RecordPlace& place,
                                            const std::string& name);

// One record: framing and payload.
std::string FrameRecord(std::string_view payload);

}  // namespace weft

#endif  // WEFT_TRAINING_RECORDS_RECORD_FILE_H_
