// Errors of system calls, and of calls that make none (too late, too large), as absl::Status.
#ifndef WEFT_PLATFORM_SYSTEM_ERROR_H_
#define WEFT_PLATFORM_SYSTEM_ERROR_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace weft {

// The status of a failed system call: "cannot <action> \"<path>\": <what the system said>; <what to
// do>". `error_number` is its errno. Control characters in the path are escaped.
absl::Status SystemError(int error_number, std::string_view action, std::string_view path);

// FailedPrecondition: a writable file is used after it was closed. Control characters in the path
// are escaped.
absl::Status ClosedFileError(std::string_view path);

// ResourceExhausted: a file holds more bytes than are read of one. Control characters in the path
// are escaped.
absl::Status TooManyBytesError(int64_t bytes, int64_t maximum_bytes, std::string_view path);

}  // namespace weft

#endif  // WEFT_PLATFORM_SYSTEM_ERROR_H_
