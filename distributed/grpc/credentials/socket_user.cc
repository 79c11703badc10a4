#include "distributed/grpc/credentials/socket_user.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "platform/file_descriptor.h"
#include "platform/system_error.h"

namespace weft {

absl::Status CheckPeerUser(int socket, uid_t user) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return SystemError(errno, "ask who is at the other end of", "a unix socket");
  }
  if (peer.uid == user || peer.uid == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("process ", peer.pid, " of user ", peer.uid,
                   " is at the other end of a unix socket; only user ", user, " may be there"));
}

absl::Status CheckLocalListener(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the path of socket ", path, " is too long"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  // A full backlog must not hold this process up.
  const FileDescriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return SystemError(errno, "open a socket for", path);
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::OkStatus();
  }
  return CheckPeerUser(probe.get(), geteuid());
}

}  // namespace weft
