#include "ops/custom/isolation/helper_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/clock.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

constexpr size_t kChunkBytes = size_t{64} << 10;

// Before the payload.
struct FrameHeader {
  uint32_t size;
  uint32_t kind;
};

// Room for the descriptor that one message carries.
union DescriptorRoom {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int))];
};

// Descriptors of a received message; all of them are open here now.
void KeepDescriptors(msghdr& message, std::deque<FileDescriptor>& kept) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t k = 0; k < count; ++k) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + k * sizeof(int), sizeof(int));
      kept.emplace_back(descriptor);
    }
  }
}

absl::Status ClosedChannel() { return absl::UnavailableError("the other end is closed"); }

}  // namespace

MonotonicDeadline DeadlineAfter(absl::Duration patience) {
  const int64_t now = RealClock().MonotonicNanos();
  const int64_t wait = absl::ToInt64Nanoseconds(patience);
  return wait > kNoDeadline - now ? kNoDeadline : now + wait;
}

HelperChannel::HelperChannel(FileDescriptor socket, bool takes_descriptors)
    : socket_(std::move(socket)), takes_descriptors_(takes_descriptors), chunk_(kChunkBytes) {}

absl::Status HelperChannel::Await(short events, MonotonicDeadline deadline) const {
  while (true) {
    const int64_t left = deadline - RealClock().MonotonicNanos();
    const int64_t milliseconds = std::clamp<int64_t>(left / 1'000'000 + 1, 0, INT_MAX);
    pollfd polled = {socket_.get(), events, 0};
    const int ready = poll(
        &polled, 1, deadline == kNoDeadline ? -1 : static_cast<int>(left <= 0 ? 0 : milliseconds));
    if (ready > 0) return absl::OkStatus();
    if (ready == 0 && left <= 0)
      return absl::DeadlineExceededError("the other end does not answer");
    if (ready < 0 && errno != EINTR) return SystemError(errno, "wait for", "a helper process");
  }
}

absl::Status HelperChannel::Send(HelperFrame kind, std::string_view payload,
                                 MonotonicDeadline deadline, int attached) {
  if (payload.size() > kLongestFrame) {
    return TooManyBytesError(static_cast<int64_t>(payload.size()), kLongestFrame,
                             "a message to the helper of an op library");
  }
  const FrameHeader header = {static_cast<uint32_t>(payload.size()), static_cast<uint32_t>(kind)};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(payload);
  std::string_view rest = bytes;
  while (!rest.empty()) {
    iovec part = {const_cast<char*>(rest.data()), rest.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    DescriptorRoom room = {};
    if (attached >= 0) {
      message.msg_control = room.bytes;
      message.msg_controllen = sizeof(room.bytes);
      cmsghdr* const control = CMSG_FIRSTHDR(&message);
      control->cmsg_level = SOL_SOCKET;
      control->cmsg_type = SCM_RIGHTS;
      control->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(control), &attached, sizeof(int));
    }
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      attached = -1;
      rest.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      WEFT_RETURN_IF_ERROR(Await(POLLOUT, deadline));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return ClosedChannel();
    } else if (errno != EINTR) {
      return SystemError(errno, "write to", "a helper process");
    }
  }
  return absl::OkStatus();
}

absl::Status HelperChannel::ReadMore(MonotonicDeadline deadline) {
  while (true) {
    iovec part = {chunk_.data(), chunk_.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    DescriptorRoom room = {};
    if (takes_descriptors_) {
      message.msg_control = room.bytes;
      message.msg_controllen = sizeof(room.bytes);
    }
    const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got > 0) {
      if (takes_descriptors_) KeepDescriptors(message, descriptors_);
      unread_.append(chunk_.data(), static_cast<size_t>(got));
      return absl::OkStatus();
    }
    if (got == 0 || errno == ECONNRESET) return ClosedChannel();
    if (errno == EAGAIN) {
      WEFT_RETURN_IF_ERROR(Await(POLLIN, deadline));
    } else if (errno != EINTR) {
      return SystemError(errno, "read from", "a helper process");
    }
  }
}

absl::StatusOr<ReceivedFrame> HelperChannel::Receive(MonotonicDeadline deadline) {
  FrameHeader header = {};
  while (unread_.size() < sizeof(header)) WEFT_RETURN_IF_ERROR(ReadMore(deadline));
  std::memcpy(&header, unread_.data(), sizeof(header));
  const bool is_frame = header.size <= kLongestFrame &&
                        header.kind >= static_cast<uint32_t>(HelperFrame::kMapping) &&
                        header.kind <= static_cast<uint32_t>(HelperFrame::kDone);
  if (!is_frame) return absl::InvalidArgumentError("what came is no message");
  while (unread_.size() - sizeof(header) < header.size) WEFT_RETURN_IF_ERROR(ReadMore(deadline));
  ReceivedFrame frame{static_cast<HelperFrame>(header.kind),
                      unread_.substr(sizeof(header), header.size)};
  unread_.erase(0, sizeof(header) + header.size);
  return frame;
}

FileDescriptor HelperChannel::TakeDescriptor() {
  if (descriptors_.empty()) return FileDescriptor();
  FileDescriptor oldest = std::move(descriptors_.front());
  descriptors_.pop_front();
  return oldest;
}

bool HelperChannel::HasNews() const {
  pollfd polled = {socket_.get(), POLLIN, 0};
  return !unread_.empty() || poll(&polled, 1, 0) > 0;
}

}  // namespace weft
