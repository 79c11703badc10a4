#include "distributed/grpc/connection_gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "distributed/grpc/address.h"
#include "distributed/grpc/credentials/socket_user.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

constexpr int kBacklog = 512;
// Between two looks at the connections that are there.
constexpr int kAcceptedAtOnce = 64;
// How long nothing is accepted where the system has no room.
constexpr int kPauseMilliseconds = 100;
constexpr int kLongestWaitMilliseconds = 60'000;
// Files that the process needs for other things, and the most it asks for.
constexpr rlim_t kOtherFiles = 256;
constexpr rlim_t kMaxFiles = 16'384;

// Two descriptors for a connection, beside those of other things.
int ConnectionsThatFit(int wanted) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  if (limit.rlim_cur < std::min(limit.rlim_max, kMaxFiles)) {
    const rlimit raised = {std::min(limit.rlim_max, kMaxFiles), limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  const rlim_t others = std::min(kOtherFiles, limit.rlim_cur / 2);
  const rlim_t fit = std::min<rlim_t>((limit.rlim_cur - others) / 2, kMaxFiles);
  return std::max(1, std::min(wanted, static_cast<int>(fit)));
}

bool IsUnix(const std::string& address) { return absl::StartsWith(address, "unix:"); }

absl::StatusOr<FileDescriptor> Bind(const std::string& address, int family, const sockaddr* name,
                                    socklen_t size) {
  FileDescriptor listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return SystemError(errno, "open a socket for", address);
  const int yes = 1, no = 0;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (family == AF_INET6) {
    setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  }
  const PrivateFileMode mode;
  if (bind(listener.get(), name, size) == 0 && listen(listener.get(), kBacklog) == 0) {
    return listener;
  }
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address, ": ", std::strerror(errno),
                   "; the address is in use by another process, or not one of this machine's"));
}

absl::StatusOr<FileDescriptor> BindUnix(const std::string& address) {
  const std::string path = address.substr(std::strlen("unix:"));
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the path of ", address, " is too long"));
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  return Bind(address, AF_UNIX, reinterpret_cast<const sockaddr*>(&name), sizeof(name));
}

absl::StatusOr<FileDescriptor> BindTcp(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot resolve address ", address, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  return Bind(address, found->ai_family, found->ai_addr, found->ai_addrlen);
}

int PortOf(const FileDescriptor& listener) {
  sockaddr_storage name = {};
  socklen_t size = sizeof(name);
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&name), &size) != 0) return 0;
  if (name.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in*>(&name)->sin_port);
  return ntohs(reinterpret_cast<sockaddr_in6*>(&name)->sin6_port);
}

// The other end: "10.0.0.7" and 4711, "" and 0 where it is no network's.
std::pair<std::string, int> OtherEnd(int connection) {
  sockaddr_storage name = {};
  socklen_t size = sizeof(name);
  if (getpeername(connection, reinterpret_cast<sockaddr*>(&name), &size) != 0) return {"", 0};
  char text[INET6_ADDRSTRLEN] = "";
  if (name.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(name);
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text));
    return {text, ntohs(in.sin_port)};
  }
  if (name.ss_family != AF_INET6) return {"", 0};
  const auto& in = reinterpret_cast<const sockaddr_in6&>(name);
  if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
    inet_ntop(AF_INET, in.sin6_addr.s6_addr + 12, text, sizeof(text));
    return {text, ntohs(in.sin6_port)};
  }
  inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof(text));
  return {absl::StrCat("[", text, "]"), ntohs(in.sin6_port)};
}

// "127.0.0.1:4711" of gRPC's "ipv4:127.0.0.1:4711", "[::1]:4711" of "ipv6:%5B::1%5D:4711".
std::string PeerOf(const std::string& grpc_peer) {
  const size_t colon = grpc_peer.find(':');
  return absl::StrReplaceAll(grpc_peer.substr(colon == std::string::npos ? 0 : colon + 1),
                             {{"%5B", "["}, {"%5D", "]"}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::Listen(
    const std::string& address, const ConnectionLimits& limits) {
  WEFT_ASSIGN_OR_RETURN(FileDescriptor listener,
                        IsUnix(address) ? BindUnix(address) : BindTcp(address));
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return SystemError(errno, "open an event for", address);
  std::string bound = address;
  if (IsUnix(address)) {
    WEFT_RETURN_IF_ERROR(KeepSocketPrivate(address));
  } else {
    bound = absl::StrCat(address.substr(0, address.rfind(':')), ":", PortOf(listener));
  }
  return std::unique_ptr<ConnectionGate>(
      new ConnectionGate(std::move(bound), std::move(listener), std::move(wake), limits));
}

ConnectionGate::ConnectionGate(std::string address, FileDescriptor listener, FileDescriptor wake,
                               const ConnectionLimits& limits)
    : address_(std::move(address)),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      limits_(limits) {
  limits_.total = ConnectionsThatFit(limits_.total);
  limits_.strangers = std::min(limits_.strangers, std::max(1, limits_.total / 2));
}

ConnectionGate::~ConnectionGate() { Stop(); }

void ConnectionGate::Start(Take take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { Run(); });
}

void ConnectionGate::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof(one)) < 0) {  // full: it has been written to before
  }
  if (thread_.joinable()) thread_.join();
}

void ConnectionGate::Trust(const std::string& peer) {
  const std::string key = PeerOf(peer);
  MutexLock lock(mutex_);
  for (Connection& connection : connections_) {
    if (connection.peer == key) connection.trusted = true;
  }
}

int ConnectionGate::connections() const {
  MutexLock lock(mutex_);
  return static_cast<int>(connections_.size());
}

int ConnectionGate::strangers() const {
  MutexLock lock(mutex_);
  return Strangers();
}

int ConnectionGate::Strangers() const {
  return static_cast<int>(std::count_if(connections_.begin(), connections_.end(),
                                        [](const Connection& one) { return !one.trusted; }));
}

void ConnectionGate::Run() {
  bool has_room = true;
  while (true) {
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
    int wait = has_room ? kLongestWaitMilliseconds : kPauseMilliseconds;
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      const absl::Time now = absl::Now();
      EndLateStrangers(now);
      for (const Connection& connection : connections_) {
        polled.push_back({connection.socket.get(), POLLRDHUP, 0});
        if (connection.trusted) continue;
        const absl::Duration left = connection.accepted + limits_.patience - now;
        wait = std::min<int>(wait, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
      }
    }
    if (has_room) polled.push_back({listener_.get(), POLLIN, 0});
    if (poll(polled.data(), polled.size(), wait) < 0 && errno != EINTR) return;
    {
      // Those that were added meanwhile are behind these.
      MutexLock lock(mutex_);
      auto connection = connections_.begin();
      for (size_t i = 1; i < polled.size() && connection != connections_.end(); ++i) {
        if (polled[i].fd != connection->socket.get()) break;
        const bool has_ended = (polled[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
        // One that sends no more may still listen: once it is not counted, nobody would end it.
        if (has_ended && !connection->trusted) shutdown(connection->socket.get(), SHUT_RDWR);
        connection = has_ended ? connections_.erase(connection) : std::next(connection);
      }
    }
    has_room = has_room ? AcceptAll() : true;
  }
}

bool ConnectionGate::AcceptAll() {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    const int connection = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) continue;
      MutexLock lock(mutex_);
      EndOldestStranger();
      return false;
    }
    if (Admit(connection)) {
      take_(listener_.get(), connection);
    } else {
      close(connection);
    }
  }
  return true;
}

bool ConnectionGate::Admit(int connection) {
  Connection added;
  added.socket = FileDescriptor(fcntl(connection, F_DUPFD_CLOEXEC, 0));
  if (!added.socket.valid()) return false;
  added.accepted = absl::Now();
  if (IsUnix(address_)) {
    if (const absl::Status status = CheckPeerUser(connection, geteuid()); !status.ok()) {
      Log(LogLevel::kWarning, "refused a connection: ", std::string(status.message()));
      return false;
    }
    added.trusted = true;
  } else {
    const int yes = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    const auto [host, port] = OtherEnd(connection);
    if (host.empty()) return false;  // has gone
    added.host = host;
    added.peer = absl::StrCat(host, ":", port);
  }
  MutexLock lock(mutex_);
  if (!added.trusted && Strangers() >= limits_.strangers) EndOldestStranger();
  if (static_cast<int>(connections_.size()) >= limits_.total) return false;
  connections_.push_back(std::move(added));
  return true;
}

void ConnectionGate::EndOldestStranger() {
  std::map<std::string, int> by_host;
  for (const Connection& connection : connections_) {
    if (!connection.trusted) ++by_host[connection.host];
  }
  auto victim = connections_.end();
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (it->trusted) continue;
    if (victim == connections_.end() || by_host[it->host] > by_host[victim->host]) victim = it;
  }
  if (victim == connections_.end()) return;
  shutdown(victim->socket.get(), SHUT_RDWR);
  connections_.erase(victim);
}

void ConnectionGate::EndLateStrangers(absl::Time now) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const bool is_late = !it->trusted && now - it->accepted >= limits_.patience;
    if (is_late) shutdown(it->socket.get(), SHUT_RDWR);
    it = is_late ? connections_.erase(it) : std::next(it);
  }
}

}  // namespace weft
