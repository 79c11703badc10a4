// Addresses of workers: "host:port", "[ipv6]:port" or "unix:/path".
#ifndef WEFT_DISTRIBUTED_GRPC_ADDRESS_H_
#define WEFT_DISTRIBUTED_GRPC_ADDRESS_H_

#include <string>

#include "absl/status/status.h"

namespace weft {

// InvalidArgument, saying what is wrong, unless the address has one of the forms above (a socket's
// path ends at 107 bytes). A host other than this machine's loopback is FailedPrecondition unless
// `network_allowed`: there are keys (distributed/keys), or somebody has said --insecure-network.
absl::Status CheckAddress(const std::string& address, bool network_allowed);

// The host of "host:port" or "[ipv6]:port", without brackets; "" for unix sockets.
std::string HostOf(const std::string& address);

// The path of a unix socket; "" for others.
std::string SocketPathOf(const std::string& address);

// While it lives, files and sockets that this process makes are its user's alone: there is no
// moment in which others could connect to a unix socket. It concerns all threads.
class PrivateFileMode {
 public:
  PrivateFileMode();
  ~PrivateFileMode();
  PrivateFileMode(const PrivateFileMode&) = delete;
  PrivateFileMode& operator=(const PrivateFileMode&) = delete;

 private:
  const unsigned before_;
};

// True for unix sockets, 127.0.0.0/8, ::1 and localhost. REQUIRES: a well-formed address.
bool IsLocalAddress(const std::string& address);

// Whether a server could listen there now: Unavailable naming the address when it is taken,
// InvalidArgument when no socket can have the name, otherwise the system's error. Removes a socket
// file that nobody listens on.
absl::Status ProbeListen(const std::string& address);

// A unix socket that is listened on: only this user may connect to it. Does nothing to others.
absl::Status KeepSocketPrivate(const std::string& address);

// Removes the file of a unix socket that is no longer listened on.
void RemoveSocket(const std::string& address);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_ADDRESS_H_
