// Reading of files that hold secrets: a token, a private key.
#ifndef WEFT_PLATFORM_SECRET_FILE_H_
#define WEFT_PLATFORM_SECRET_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// The bytes of a secret file. `what` begins the error's text ("token file"), `advice` ends it.
// PermissionDenied unless it is a regular file of this process's user that no other user can read
// or write (mode 0600); the path itself may not be a symbolic link. ResourceExhausted above
// `maximum_bytes`. No error has bytes of the file in it. Thread-safe.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path, int64_t maximum_bytes,
                                           std::string_view what, std::string_view advice);

}  // namespace weft

#endif  // WEFT_PLATFORM_SECRET_FILE_H_
