#include "distributed/shared_memory/handover.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "distributed/grpc/credentials/socket_user.h"
#include "platform/private_folder.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

constexpr uint32_t kGreetingMagic = 0x47524657;  // "WFRG"
constexpr uint32_t kGreetingFormat = 1;
constexpr size_t kLongestToken = 4096;
constexpr size_t kLongestReason = 2000;
constexpr int kBacklog = 1024;
constexpr char kUnnamed = '.';  // a socket that nobody listens on yet begins so

// What a greeting begins with; the token follows.
struct GreetingBytes {
  uint32_t magic = kGreetingMagic;
  uint32_t format = kGreetingFormat;
  uint64_t job_id = 0;
  int32_t from = 0;
  int32_t to = 0;
};
static_assert(sizeof(GreetingBytes) == 24);

// What a notice begins with; the reason follows.
struct NoticeBytes {
  uint8_t kind = 0;
  uint8_t code = 0;  // absl::StatusCode
};

std::string NameOf(const RingPlace& place) {
  return absl::StrFormat("%016x-%d", place.job_id, place.rank.value);
}

absl::StatusOr<sockaddr_un> SocketAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the path ", path, " is too long for a socket (",
                                                   path.size(), " bytes of ",
                                                   sizeof(address.sun_path) - 1, ")"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

FileDescriptor NewSocket(int flags) {
  return FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
}

bool HasEnded(const std::string& path) {
  const absl::StatusOr<sockaddr_un> address = SocketAddress(path);
  const FileDescriptor probe = NewSocket(SOCK_NONBLOCK);
  if (!address.ok() || !probe.valid()) return false;
  const auto* const target = reinterpret_cast<const sockaddr*>(&*address);
  return connect(probe.get(), target, sizeof(*address)) != 0 && errno == ECONNREFUSED;
}

// Of jobs that were killed. Those of this one are all new.
void RemoveEndedSockets(const RingPlace& place) {
  const std::string own = NameOf({"", place.job_id, RankId(0)});
  const std::string_view job = std::string_view(own).substr(0, own.find('-'));
  std::error_code error;
  std::vector<std::string> ended;
  for (const auto& entry : std::filesystem::directory_iterator(place.folder, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (name[0] == kUnnamed || std::string_view(name).starts_with(job)) continue;
    if (entry.is_socket(ignored) && HasEnded(entry.path().string())) {
      ended.push_back(entry.path().string());
    }
  }
  for (const std::string& path : ended) unlink(path.c_str());
}

absl::Status OpenFolder(const std::string& path) {
  WEFT_RETURN_IF_ERROR(OpenPrivateFolder(path).status());
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return SystemError(errno, "examine", path);
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the folder ", path,
                   " can be entered by other users; take that right from them (chmod 700)"));
}

}  // namespace

std::string RingFolder() {
  std::error_code error;
  const std::filesystem::path place = std::filesystem::temp_directory_path(error);
  return absl::StrCat(error ? "/tmp" : place.string(), "/weft-rings-", geteuid());
}

absl::StatusOr<std::unique_ptr<RingListener>> RingListener::Listen(const RingPlace& place) {
  WEFT_RETURN_IF_ERROR(OpenFolder(place.folder));
  RemoveEndedSockets(place);
  const std::string path = absl::StrCat(place.folder, "/", NameOf(place));
  // It gets its name when it listens, so that others do not take it for one that has ended.
  const std::string unnamed =
      absl::StrCat(place.folder, "/", std::string(1, kUnnamed), NameOf(place), ".", getpid());
  WEFT_ASSIGN_OR_RETURN(const sockaddr_un address, SocketAddress(unnamed));
  FileDescriptor socket = NewSocket(SOCK_NONBLOCK);
  if (!socket.valid()) return SystemError(errno, "open a socket for", path);
  unlink(unnamed.c_str());
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return SystemError(errno, "listen on", path);
  }
  if (chmod(unnamed.c_str(), 0600) != 0 || listen(socket.get(), kBacklog) != 0 ||
      rename(unnamed.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(unnamed.c_str());
    return SystemError(error, "listen on", path);
  }
  return std::unique_ptr<RingListener>(new RingListener(std::move(socket), path));
}

RingListener::~RingListener() { unlink(path_.c_str()); }

std::optional<FileDescriptor> RingListener::Accept() {
  while (true) {
    FileDescriptor connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return std::nullopt;
    }
    if (CheckPeerUser(connection.get(), geteuid()).ok()) return connection;
  }
}

absl::StatusOr<std::optional<FileDescriptor>> ConnectToRing(const RingPlace& place) {
  const std::string path = absl::StrCat(place.folder, "/", NameOf(place));
  WEFT_ASSIGN_OR_RETURN(const sockaddr_un address, SocketAddress(path));
  FileDescriptor socket = NewSocket(0);
  if (!socket.valid()) return SystemError(errno, "open a socket for", path);
  // A full backlog must not hold this process up.
  const timeval patience = {1, 0};
  if (setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) != 0) {
    return SystemError(errno, "connect to", path);
  }
  while (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EINTR) continue;
    if (errno == ENOENT || errno == ECONNREFUSED) return std::nullopt;
    return SystemError(errno, "connect to", path);
  }
  // Before a peer is told the token.
  WEFT_RETURN_IF_ERROR(CheckPeerUser(socket.get(), geteuid()));
  return std::optional<FileDescriptor>(std::move(socket));
}

absl::Status SendGreeting(const FileDescriptor& connection, const RingGreeting& greeting,
                          int ring_file) {
  GreetingBytes bytes;
  bytes.job_id = greeting.job_id;
  bytes.from = greeting.from.value;
  bytes.to = greeting.to.value;
  iovec parts[] = {{&bytes, sizeof(bytes)},
                   {const_cast<char*>(greeting.token.data()), greeting.token.size()}};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &ring_file, sizeof(int));
  if (sendmsg(connection.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    return SystemError(errno, "hand over", "a ring in shared memory");
  }
  return absl::OkStatus();
}

absl::StatusOr<ReceivedGreeting> ReceiveGreeting(const FileDescriptor& connection) {
  std::array<char, sizeof(GreetingBytes) + kLongestToken> bytes;
  iovec part = {bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_LEN(sizeof(int));  // no room for another in the padding
  const ssize_t size = recvmsg(connection.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
    return absl::UnavailableError("no greeting has come");
  }
  if (size < 0) return SystemError(errno, "receive", "a ring in shared memory");
  ReceivedGreeting received;
  // Each file that came is owned at once. There is room for one: the system closes others.
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
        header->cmsg_len != CMSG_LEN(sizeof(int))) {
      continue;
    }
    int file = -1;
    std::memcpy(&file, CMSG_DATA(header), sizeof(int));
    received.ring_file = FileDescriptor(file);
  }
  GreetingBytes greeting;
  const bool is_whole = static_cast<size_t>(size) >= sizeof(greeting) &&
                        (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
                        received.ring_file.valid();
  if (is_whole) std::memcpy(&greeting, bytes.data(), sizeof(greeting));
  if (!is_whole || greeting.magic != kGreetingMagic || greeting.format != kGreetingFormat) {
    return absl::InvalidArgumentError("what has come is no greeting of a ring");
  }
  received.greeting = {
      greeting.job_id, RankId(greeting.from), RankId(greeting.to),
      std::string(bytes.data() + sizeof(greeting), static_cast<size_t>(size) - sizeof(greeting))};
  return received;
}

void Notify(const FileDescriptor& connection, RingNotice::Kind kind, const absl::Status& status) {
  NoticeBytes bytes;
  bytes.kind = static_cast<uint8_t>(kind);
  bytes.code = static_cast<uint8_t>(status.code());
  const absl::string_view text = status.message().substr(0, kLongestReason);
  iovec parts[] = {{&bytes, sizeof(bytes)}, {const_cast<char*>(text.data()), text.size()}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  static_cast<void>(sendmsg(connection.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

absl::StatusOr<std::optional<RingNotice>> TakeNotice(const FileDescriptor& connection) {
  std::array<char, sizeof(NoticeBytes) + kLongestReason> bytes;
  const ssize_t size = recv(connection.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (size <= 0) return absl::UnavailableError("its connection broke (did its process end?)");
  NoticeBytes head;
  if (static_cast<size_t>(size) < sizeof(head)) return absl::DataLossError("it sent half a notice");
  std::memcpy(&head, bytes.data(), sizeof(head));
  constexpr auto kLast = static_cast<uint8_t>(RingNotice::Kind::kRefuse);
  constexpr auto kLastCode = static_cast<uint8_t>(absl::StatusCode::kUnauthenticated);
  if (head.kind < 1 || head.kind > kLast || head.code > kLastCode) {
    return absl::DataLossError(absl::StrCat("it sent a notice that makes no sense: kind ",
                                            int{head.kind}, ", code ", int{head.code}));
  }
  RingNotice notice;
  notice.kind = static_cast<RingNotice::Kind>(head.kind);
  notice.status = absl::Status(
      static_cast<absl::StatusCode>(head.code),
      absl::string_view(bytes.data() + sizeof(head), static_cast<size_t>(size) - sizeof(head)));
  return std::optional<RingNotice>(std::move(notice));
}

}  // namespace weft
