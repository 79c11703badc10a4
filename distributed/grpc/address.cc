#include "distributed/grpc/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "distributed/keys/host_and_port.h"
#include "platform/file_descriptor.h"
#include "platform/system_error.h"

namespace weft {
namespace {

constexpr char kUnixPrefix[] = "unix:";
constexpr size_t kLongestSocketPath = sizeof(sockaddr_un{}.sun_path) - 1;

std::string SocketPath(const std::string& address) {
  return std::string(absl::StripPrefix(address, kUnixPrefix));
}

absl::Status CheckSocketPath(const std::string& address) {
  const std::string path = SocketPath(address);
  if (path.empty() || path[0] != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("address '", address, "' needs an absolute path after 'unix:'"));
  }
  if (path.size() > kLongestSocketPath) {
    return absl::InvalidArgumentError(
        absl::StrCat("the path of address '", address, "' has ", path.size(),
                     " bytes; the system allows sockets ", kLongestSocketPath));
  }
  return absl::OkStatus();
}

absl::Status InUse(const std::string& address) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address,
                   ": the address is in use by another process; end it or choose another address"));
}

absl::Status ProbeSocketFile(const std::string& address) {
  if (const absl::Status status = CheckSocketPath(address); !status.ok()) return status;
  const std::string path = SocketPath(address);
  sockaddr_un target = {};
  target.sun_family = AF_UNIX;
  std::memcpy(target.sun_path, path.data(), path.size());
  FileDescriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe.valid()) return SystemError(errno, "open a socket for", address);
  if (connect(probe.get(), reinterpret_cast<sockaddr*>(&target), sizeof(target)) == 0) {
    return InUse(address);
  }
  if (errno == ECONNREFUSED) unlink(path.c_str());  // left over by a process that was killed
  FileDescriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const PrivateFileMode mode;
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&target), sizeof(target)) != 0) {
    return SystemError(errno, "listen on", address);
  }
  unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace

// 127.0.0.0/8 in numbers; a name that begins so ("127.example.org") is one of the network.
static bool IsLoopbackNumber(const std::string& host) {
  in_addr parsed = {};
  return inet_pton(AF_INET, host.c_str(), &parsed) == 1 && (ntohl(parsed.s_addr) >> 24) == 127;
}

PrivateFileMode::PrivateFileMode() : before_(umask(0177)) {}
PrivateFileMode::~PrivateFileMode() { umask(before_); }

absl::Status KeepSocketPrivate(const std::string& address) {
  if (!absl::StartsWith(address, kUnixPrefix)) return absl::OkStatus();
  const std::string path = SocketPath(address);
  if (chmod(path.c_str(), 0600) != 0) return SystemError(errno, "make private", path);
  return absl::OkStatus();
}

void RemoveSocket(const std::string& address) {
  if (absl::StartsWith(address, kUnixPrefix)) unlink(SocketPath(address).c_str());
}

bool IsLocalAddress(const std::string& address) {
  if (absl::StartsWith(address, kUnixPrefix)) return true;
  const std::string host = SplitAddress(address).host;
  return host == "localhost" || host == "::1" || IsLoopbackNumber(host);
}

std::string HostOf(const std::string& address) {
  return absl::StartsWith(address, kUnixPrefix) ? "" : SplitAddress(address).host;
}

std::string SocketPathOf(const std::string& address) {
  return absl::StartsWith(address, kUnixPrefix) ? SocketPath(address) : "";
}

absl::Status CheckAddress(const std::string& address, bool network_allowed) {
  if (absl::StartsWith(address, kUnixPrefix)) return CheckSocketPath(address);
  const HostAndPort parts = SplitAddress(address);
  int port = 0;
  if (parts.host.empty() || !absl::SimpleAtoi(parts.port, &port) || port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address '", address, "' is neither host:port (port 0 to 65535) nor unix:/path"));
  }
  if (!IsLocalAddress(address) && !network_allowed) {
    return absl::FailedPreconditionError(absl::StrCat(
        "address ", address,
        " can be reached by other machines: give the keys of the cluster (--keys DIR; graph_runner "
        "cluster keys makes them), or use a loopback address or a unix socket; in a laboratory "
        "whose network is yours alone, --insecure-network does without encryption"));
  }
  return absl::OkStatus();
}

absl::Status ProbeListen(const std::string& address) {
  if (absl::StartsWith(address, kUnixPrefix)) return ProbeSocketFile(address);
  const HostAndPort parts = SplitAddress(address);
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found);
      error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot resolve address ", address, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  FileDescriptor listener(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.valid()) return SystemError(errno, "open a socket for", address);
  // As the server will: connections that linger from an earlier process do not count.
  const int yes = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(listener.get(), found->ai_addr, found->ai_addrlen) != 0) {
    return errno == EADDRINUSE ? InUse(address) : SystemError(errno, "listen on", address);
  }
  return absl::OkStatus();
}

}  // namespace weft
