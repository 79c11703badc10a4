// Helpers for absl::Status.
#ifndef WEFT_PLATFORM_STATUS_H_
#define WEFT_PLATFORM_STATUS_H_

#include <string_view>

#include "absl/status/status.h"

namespace weft {

// The same error with "prefix: " before its text, its code and payloads kept. OK stays OK.
absl::Status Annotate(const absl::Status& status, std::string_view prefix);

}  // namespace weft

#endif  // WEFT_PLATFORM_STATUS_H_
