#include "tools/chaos/socket_proxy.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

constexpr size_t kProxyBuffer = 256 << 10;  // bytes in each direction of a connection
constexpr size_t kFlippedBytes = 64;

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the path of a socket is longer than ", sizeof(address.sun_path) - 1,
                     " characters: ", path, "; set TMPDIR to a shorter folder"));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

absl::StatusOr<FileDescriptor> NewSocket() {
  FileDescriptor socket_end(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_end.valid()) return SystemError(errno, "open", "a socket");
  return socket_end;
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

absl::StatusOr<std::unique_ptr<SocketProxy>> SocketProxy::Create(const std::string& path,
                                                                 const std::string& target) {
  WEFT_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  WEFT_RETURN_IF_ERROR(AddressOf(target).status());
  WEFT_ASSIGN_OR_RETURN(FileDescriptor listener, NewSocket());
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    return SystemError(errno, "listen on", path);
  }
  int pair[2] = {-1, -1};
  if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) != 0) return SystemError(errno, "open", "a pipe");
  return std::unique_ptr<SocketProxy>(new SocketProxy(
      path, target, std::move(listener), FileDescriptor(pair[0]), FileDescriptor(pair[1])));
}

SocketProxy::SocketProxy(std::string path, std::string target, FileDescriptor listener,
                         FileDescriptor wake_read, FileDescriptor wake_write)
    : path_(std::move(path)),
      target_(std::move(target)),
      listener_(std::move(listener)),
      wake_read_(std::move(wake_read)),
      wake_write_(std::move(wake_write)) {
  thread_ = std::thread([this] { Serve(); });
}

SocketProxy::~SocketProxy() {
  is_ending_ = true;
  Wake();
  thread_.join();
  unlink(path_.c_str());
}

void SocketProxy::SetCut(bool cut) {
  is_cut_ = cut;
  Wake();
}

void SocketProxy::Reset() {
  is_reset_ = true;
  Wake();
}

void SocketProxy::FlipBit() { flips_ = true; }

void SocketProxy::Wake() {
  const char byte = 0;
  // A full pipe wakes it as well.
  if (write(wake_write_.get(), &byte, 1) < 0) return;
}

void SocketProxy::Serve() {
  while (!is_ending_) {
    const bool cut = is_cut_;
    std::vector<pollfd> polled = {{wake_read_.get(), POLLIN, 0}};
    polled.push_back({cut ? -1 : listener_.get(), POLLIN, 0});
    for (const auto& connection : connections_) {
      for (int i = 0; i < 2; ++i) {
        short events = 0;
        const Direction& in = connection->from[i];
        if (in.is_empty() && !in.has_ended) events = POLLIN;
        if (!connection->from[1 - i].is_empty()) events = static_cast<short>(events | POLLOUT);
        // A descriptor that is negative is left out; so errors of a cut connection are not seen.
        polled.push_back({cut ? -1 : connection->ends[i].get(), events, 0});
      }
    }
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    char bytes[64];
    while (read(wake_read_.get(), bytes, sizeof(bytes)) > 0) {
    }
    if (is_reset_.exchange(false)) {
      connections_.clear();
      continue;
    }
    for (size_t i = 0; i < connections_.size(); ++i) {
      Move(*connections_[i], {polled[2 + 2 * i].revents, polled[3 + 2 * i].revents});
    }
    if ((polled[1].revents & POLLIN) != 0) Accept();
    std::erase_if(connections_, [](const auto& connection) { return connection->is_over; });
  }
  connections_.clear();
}

void SocketProxy::Accept() {
  FileDescriptor caller(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!caller.valid()) return;
  auto ours = NewSocket();
  const auto address = AddressOf(target_);
  // Of a unix socket, a connection is made at once or not at all.
  if (!ours.ok() || !address.ok() ||
      connect(ours->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    return;
  }
  auto connection = std::make_unique<Connection>();
  connection->ends[0] = std::move(caller);
  connection->ends[1] = *std::move(ours);
  connections_.push_back(std::move(connection));
}

void SocketProxy::Move(Connection& connection, const short (&events)[2]) {
  for (int i = 0; i < 2; ++i) {
    Direction& in = connection.from[i];
    if (events[i] != 0 && in.is_empty() && !in.has_ended) {
      in.bytes.resize(kProxyBuffer);
      in.written = 0;
      const ssize_t got = read(connection.ends[i].get(), in.bytes.data(), in.bytes.size());
      in.bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
      in.has_ended = got == 0 || (got < 0 && !WouldBlock());
      // Smaller ones are pings and settings, which say little.
      if (in.bytes.size() >= kFlippedBytes && flips_.exchange(false)) {
        char& flipped = in.bytes[in.bytes.size() / 2];
        flipped = static_cast<char>(flipped ^ 0x10);
      }
    }
    if (!in.is_empty()) {
      const ssize_t put = send(connection.ends[1 - i].get(), in.bytes.data() + in.written,
                               in.bytes.size() - in.written, MSG_NOSIGNAL);
      if (put > 0) in.written += static_cast<size_t>(put);
      if (put < 0 && !WouldBlock()) connection.is_over = true;
    }
    // gRPC never closes one direction alone.
    if (in.has_ended && in.is_empty()) connection.is_over = true;
  }
}

}  // namespace weft
