// Errors of data files.
#ifndef WEFT_TRAINING_RECORDS_DATA_ERROR_H_
#define WEFT_TRAINING_RECORDS_DATA_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft {

// The file is cut off or has been changed: fetch it again.
inline absl::Status DamagedData(const std::string& name, const std::string& what) {
  return absl::DataLossError(absl::StrCat("data file '", name, "': ", what));
}

// The file is whole, but not what we read or were asked for.
inline absl::Status UnreadableData(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("data file '", name, "': ", what));
}

}  // namespace weft

#endif  // WEFT_TRAINING_RECORDS_DATA_ERROR_H_
