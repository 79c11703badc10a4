// The token that opens a worker: every control call and every data stream carries it.
#ifndef WEFT_DISTRIBUTED_JOB_TOKEN_H_
#define WEFT_DISTRIBUTED_JOB_TOKEN_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// 256 random bits from the system, in hexadecimal digits.
absl::StatusOr<std::string> NewJobToken();

// Whether two tokens are equal, in a time that depends on their lengths alone.
bool SameToken(std::string_view a, std::string_view b);

// The token of a file, without surrounding white space. PermissionDenied unless it is a regular
// file of this process's user that no other user can read or write (mode 0600); InvalidArgument for
// fewer than 32 or more than 4096 characters. The path itself may not be a symbolic link.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// Makes a file of mode 0600 with the token. AlreadyExists when there is one of this name.
absl::Status WriteTokenFile(const std::string& path, const std::string& token);

// The file that worker and coordinator take when none is named: ~/.weft/token of this user.
// FailedPrecondition where there is no home folder.
absl::StatusOr<std::string> DefaultTokenFile();

// The token of the default file, which is made if it is missing.
absl::StatusOr<std::string> ReadOrMakeDefaultToken();

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_JOB_TOKEN_H_
