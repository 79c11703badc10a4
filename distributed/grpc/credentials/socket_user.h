// Whose process is at the other end of a unix socket.
#ifndef WEFT_DISTRIBUTED_GRPC_CREDENTIALS_SOCKET_USER_H_
#define WEFT_DISTRIBUTED_GRPC_CREDENTIALS_SOCKET_USER_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace weft {

// PermissionDenied unless the process at the other end of this unix socket runs as `user`, or as
// root, by the word of the kernel (SO_PEERCRED). The error names the user and the process.
absl::Status CheckPeerUser(int socket, uid_t user);

// The same for who listens on the socket at `path`, before anything is sent there. OK where nobody
// does.
absl::Status CheckLocalListener(const std::string& path);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_CREDENTIALS_SOCKET_USER_H_
