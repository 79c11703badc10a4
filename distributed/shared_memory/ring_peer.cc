#include "distributed/shared_memory/ring_peer.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/grpc/frame.h"
#include "platform/status.h"

namespace weft {
namespace {

// Ticks, a second each, that a peer may be silent.
constexpr int kPatience = 4;

}  // namespace

std::string RingPeer::name() const {
  return absl::StrCat("rank ", rank_.value, " (", address_, ")");
}

void RingPeer::OpenOutgoing(FileDescriptor connection, std::unique_ptr<RingWriter> writer) {
  outgoing_.socket = std::move(connection);
  outgoing_.is_open.store(true);
  outbox_.Open(std::move(writer));
}

void RingPeer::OpenIncoming(FileDescriptor connection, std::unique_ptr<RingReader> reader) {
  incoming_.socket = std::move(connection);
  incoming_.is_open.store(true);
  owned_reader_ = std::move(reader);
  reader_.store(owned_reader_.get(), std::memory_order_release);
}

const FileDescriptor* RingPeer::Open(Direction direction) const {
  const Connection& connection = of(direction);
  return connection.is_open.load() && !connection.has_ended.load() ? &connection.socket : nullptr;
}

void RingPeer::Tell(RingNotice::Kind kind, const absl::Status& status) const {
  for (const Direction direction : {Direction::kOutgoing, Direction::kIncoming}) {
    if (const FileDescriptor* const open = Open(direction)) Notify(*open, kind, status);
  }
}

bool RingPeer::Pump(uint64_t budget, bool announces) {
  const auto wake = [this] { Notify(outgoing_.socket, RingNotice::Kind::kWake); };
  const absl::StatusOr<RingOutbox::Next> next = outbox_.Pump(budget, announces, wake);
  if (!next.ok()) {
    BreakOff(next.status());
    return false;
  }
  return *next == RingOutbox::Next::kMore;
}

bool RingPeer::can_read() const {
  const RingReader* const reader = reader_.load(std::memory_order_acquire);
  return reader != nullptr && !reading_ended_.load() && held_at_.load() != resumes_.load() &&
         reader->has_next();
}

bool RingPeer::Drain(uint64_t budget) {
  // A thread that is at work already looks once more before it sleeps.
  if (!can_read() || !reading_.TryLock()) return false;
  const bool found = DrainLocked(*reader_.load(std::memory_order_acquire), budget);
  reading_.Unlock();
  return found;
}

bool RingPeer::DrainLocked(RingReader& reader, uint64_t budget) {
  uint64_t done = 0;
  bool found = false;
  Frame frame;
  while (done < budget && can_read()) {
    const int64_t resumes = resumes_.load();
    absl::StatusOr<bool> read = reader.Read(frame);
    if (read.ok() && *read && frame.kind != Frame::Kind::kData) {
      read = absl::DataLossError("a frame in shared memory is no part of a message");
    }
    if (!read.ok()) {
      BreakOff(read.status());
      return true;
    }
    if (!*read) break;
    const auto copy = [&](std::byte* target) {
      std::memcpy(target, reader.part(), frame.part_bytes);
    };
    switch (inbox_.Take(frame, frame.part_bytes, copy)) {
      case Inbox::Next::kRead:
        break;
      case Inbox::Next::kHold:
        held_at_.store(resumes);
        return found;
      case Inbox::Next::kEnd:
        reading_ended_.store(true);
        Notify(incoming_.socket, RingNotice::Kind::kAbort,
               absl::AbortedError("the receiver's job has ended"));
        return true;
    }
    found = true;
    done += kFrameHeaderBytes + frame.part_bytes;
    reader.Advance(frame);
    if (reader.TakeWriterWaits()) Notify(incoming_.socket, RingNotice::Kind::kWake);
  }
  return found;
}

void RingPeer::BreakOff(const absl::Status& status) {
  reading_ended_.store(true);
  const absl::Status broken = Annotate(status, absl::StrCat(name(), " sent a broken message"));
  inbox_.Fail(broken);
  outbox_.Fail(broken);
  Tell(RingNotice::Kind::kRefuse, status);
}

void RingPeer::BeginAssisting() {
  assistants_.fetch_add(1);
  RingReader* const reader = reader_.load(std::memory_order_acquire);
  if (reader != nullptr) reader->AnnounceSleep(false);
}

void RingPeer::EndAssisting() {
  assistants_.fetch_sub(1);
  AnnounceSleep();
  bool is_left = Drain(kRingPartBytes) && can_read();
  if (Pump(kRingPartBytes, /*announces=*/true)) is_left = true;
  if (is_left) wake_();
}

void RingPeer::AnnounceSleep() {
  RingReader* const reader = reader_.load(std::memory_order_acquire);
  if (reader != nullptr) reader->AnnounceSleep(true);
}

void RingPeer::Lose(const absl::Status& status, bool has_left) {
  outbox_.Fail(status);
  if (!loss_.ok()) return;
  loss_ = status;
  has_left_ = has_left;
}

bool RingPeer::FinishLoss() {
  if (loss_.ok()) return false;
  const RingReader* const reader = reader_.load(std::memory_order_acquire);
  const bool is_read = reader == nullptr || reading_ended_.load() || !reader->has_next();
  const bool is_held = !is_read && !can_read();
  if (is_read || (is_held && !has_left_)) inbox_.Fail(loss_);
  return !is_read && !is_held;
}

bool RingPeer::TickSilence(Direction direction) {
  return Open(direction) != nullptr && ++of(direction).silent_ticks > kPatience;
}

}  // namespace weft
