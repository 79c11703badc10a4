#include "distributed/shared_memory/shared_memory_transport.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/job_token.h"
#include "graph/schedule/channel_credits.h"
#include "platform/clock.h"
#include "platform/cpu_info.h"
#include "platform/file_system.h"
#include "platform/log.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

using Direction = RingPeer::Direction;
using Kind = RingNotice::Kind;

// A message up to this is written by the thread that posts it: that takes less than to wake
// another.
constexpr uint64_t kPostedBytes = uint64_t{64} << 10;
// What is done for one peer before it is another's turn.
constexpr uint64_t kTurnBytes = uint64_t{256} << 10;
// How long a thread that waits looks at the ring before it sleeps. Waking takes as long.
constexpr int64_t kSpinNanos = 20'000;
constexpr int64_t kTickNanos = 1'000'000'000;
// Connections without a greeting: as many as there may be at once, and ticks of each.
constexpr size_t kMaxStrangers = 1024;
constexpr int kStrangerTicks = 5;

void Relax() { __builtin_ia32_pause(); }

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> SharedMemoryTransport::Open(const SharedMemoryJob& job,
                                                                       OpenSockets open_sockets) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<RingListener> listener,
                        RingListener::Listen({job.folder, job.job_id, job.rank}));
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return SystemError(errno, "make", "an event");
  std::unique_ptr<SharedMemoryTransport> transport(
      new SharedMemoryTransport(job, std::move(listener), std::move(wake)));
  SharedMemoryTransport* const self = transport.get();
  WEFT_ASSIGN_OR_RETURN(transport->owned_sockets_, open_sockets([self](const std::string& reason) {
                          self->AbortAll(reason);
                        }));
  transport->sockets_.store(transport->owned_sockets_.get());
  transport->thread_ = std::thread([self] { self->Run(); });
  return std::unique_ptr<Transport>(std::move(transport));
}

SharedMemoryTransport::SharedMemoryTransport(const SharedMemoryJob& job,
                                             std::unique_ptr<RingListener> listener,
                                             FileDescriptor wake)
    : job_(job),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      cores_(AvailableCores(RealFileSystem())) {
  for (size_t i = 0; i < job_.addresses.size(); ++i) {
    const RankId rank(static_cast<int32_t>(i));
    peers_.push_back(nullptr);
    if (rank == job_.rank) continue;
    if (job_.may_be_here[i]) ++ranks_here_;
    const auto way = job_.may_be_here[i] ? RingPeer::Way::kUnknown : RingPeer::Way::kSockets;
    peers_.back() = std::make_unique<RingPeer>(rank, job_.addresses[i], way, [this] { Wake(); });
  }
}

SharedMemoryTransport::~SharedMemoryTransport() {
  const absl::Status closed = absl::AbortedError("the transport is closed");
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    peer->inbox().Fail(closed);
    peer->outbox().Fail(closed);
    peer->Tell(Kind::kClose);
  }
  sockets_.store(nullptr);
  owned_sockets_.reset();
  stopping_.store(true);
  Wake();
  if (thread_.joinable()) thread_.join();
}

RingPeer* SharedMemoryTransport::FindPeer(RankId peer, TransferObserver& observer) {
  if (RingPeer* const found = peer.valid() && static_cast<size_t>(peer.value) < peers_.size()
                                  ? peers_[static_cast<size_t>(peer.value)].get()
                                  : nullptr) {
    return found;
  }
  observer.Done(absl::InternalError(
      absl::StrCat("rank ", peer.value, " is no peer of rank ", job_.rank.value)));
  return nullptr;
}

bool SharedMemoryTransport::UsesRing(RingPeer& peer) {
  RingPeer::Way way = peer.way();
  if (way != RingPeer::Way::kUnknown) return way == RingPeer::Way::kRing;
  MutexLock lock(peer.opening());
  way = peer.way();
  if (way != RingPeer::Way::kUnknown) return way == RingPeer::Way::kRing;
  std::string reason;
  if (IsAborted(reason)) return true;  // all operations have failed
  const absl::Status opened = OpenRing(peer);
  if (!opened.ok()) {
    const absl::Status failed(opened.code(),
                              absl::StrCat("rank ", job_.rank.value, " shares no memory with ",
                                           peer.name(), ": ", opened.message()));
    peer.inbox().Fail(failed);
    peer.outbox().Fail(failed);
    peer.set_way(RingPeer::Way::kRing);
  }
  // What was opened meanwhile has not heard of an abort.
  if (IsAborted(reason)) peer.Tell(Kind::kAbort, absl::AbortedError(reason));
  return peer.way() == RingPeer::Way::kRing;
}

absl::Status SharedMemoryTransport::OpenRing(RingPeer& peer) {
  WEFT_ASSIGN_OR_RETURN(std::optional<FileDescriptor> connection,
                        ConnectToRing({job_.folder, job_.job_id, peer.rank()}));
  if (!connection.has_value()) {
    peer.set_way(RingPeer::Way::kSockets);
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<RingWriter> writer, RingWriter::Create());
  WEFT_RETURN_IF_ERROR(
      SendGreeting(*connection, {job_.job_id, job_.rank, peer.rank(), job_.token}, writer->file()));
  Log(LogLevel::kInfo, "shares memory with ", peer.name());
  peer.OpenOutgoing(*std::move(connection), std::move(writer));
  peer.set_way(RingPeer::Way::kRing);
  Wake();
  return absl::OkStatus();
}

void SharedMemoryTransport::Send(RankId peer, const MessageHeader& header, const void* data,
                                 TransferObserver& observer) {
  RingPeer* const found = FindPeer(peer, observer);
  if (found == nullptr) return;
  if (!UsesRing(*found)) return sockets_.load()->Send(peer, header, data, observer);
  bytes_sent_.fetch_add(static_cast<int64_t>(header.bytes), std::memory_order_relaxed);
  const bool is_first = found->outbox().Post(header, data, observer);
  if (!is_first) return;
  if (header.bytes > kPostedBytes || found->Pump(kPostedBytes, /*announces=*/true)) Wake();
}

void SharedMemoryTransport::Receive(RankId peer, const MessageHeader& header, void* data,
                                    TransferObserver& observer) {
  RingPeer* const found = FindPeer(peer, observer);
  if (found == nullptr) return;
  if (!UsesRing(*found)) return sockets_.load()->Receive(peer, header, data, observer);
  found->inbox().Receive(header, data, observer);
}

void SharedMemoryTransport::Assist(RankId peer, const std::atomic<bool>& is_under_way, bool alone) {
  const bool exists = peer.valid() && static_cast<size_t>(peer.value) < peers_.size();
  RingPeer* const found = exists ? peers_[static_cast<size_t>(peer.value)].get() : nullptr;
  if (found == nullptr || found->way() != RingPeer::Way::kRing) return;
  // Who spins where others want the core keeps up what it waits for.
  const bool spins = cores_ >= (alone ? ranks_here_ : 2 * ranks_here_);
  found->BeginAssisting();
  int64_t quiet_since = RealClock().MonotonicNanos();
  while (is_under_way.load(std::memory_order_acquire)) {
    const bool received = found->Drain(kTurnBytes);
    const bool sends = found->outbox().can_write();
    if (sends) found->Pump(kTurnBytes, /*announces=*/false);
    if (received || sends) {
      quiet_since = RealClock().MonotonicNanos();
      continue;
    }
    if (!spins || RealClock().MonotonicNanos() - quiet_since > kSpinNanos) break;
    Relax();
  }
  found->EndAssisting();
}

int64_t SharedMemoryTransport::bytes_sent() const {
  const Transport* const sockets = sockets_.load();
  return bytes_sent_.load() + (sockets == nullptr ? 0 : sockets->bytes_sent());
}

int64_t SharedMemoryTransport::header_bytes_sent() const {
  const Transport* const sockets = sockets_.load();
  int64_t bytes = sockets == nullptr ? 0 : sockets->header_bytes_sent();
  for (const auto& peer : peers_) {
    if (peer != nullptr) bytes += peer->outbox().header_bytes_sent();
  }
  return bytes;
}

int64_t SharedMemoryTransport::unexpected_bytes_limit() const {
  return static_cast<int64_t>(kInbox.bytes);
}

int64_t SharedMemoryTransport::ring_bytes() const {
  return 2 * int64_t{ranks_here_ - 1} * static_cast<int64_t>(kRingMappingBytes);
}

void SharedMemoryTransport::Abort(const absl::Status& reason) {
  AbortAll(std::string(reason.message()));
}

void SharedMemoryTransport::AbortAll(const std::string& reason) {
  {
    MutexLock lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    reason_ = reason;
  }
  const absl::Status status = absl::AbortedError(absl::StrCat("the job was aborted: ", reason));
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    peer->inbox().Fail(status);
    peer->outbox().Fail(status);
    peer->Tell(Kind::kAbort, absl::AbortedError(reason));
  }
  if (Transport* const sockets = sockets_.load()) sockets->Abort(absl::AbortedError(reason));
}

bool SharedMemoryTransport::IsAborted(std::string& reason) {
  MutexLock lock(mutex_);
  reason = reason_;
  return aborted_;
}

void SharedMemoryTransport::Wake() {
  has_work_.store(true);
  if (!is_asleep_.exchange(false)) return;
  const uint64_t one = 1;
  static_cast<void>(!write(wake_.get(), &one, sizeof(one)));
}

void SharedMemoryTransport::Run() {
  int64_t next_tick = RealClock().MonotonicNanos() + kTickNanos;
  while (!stopping_.load()) {
    has_work_.store(false);
    if (WorkOnRings()) {
      Poll(0);
    } else {
      is_asleep_.store(true);
      const int64_t left = next_tick - RealClock().MonotonicNanos();
      const bool sleeps = !HasWork() && !has_work_.load() && left > 0;
      Poll(sleeps ? static_cast<int>(left / 1'000'000) + 1 : 0);
      is_asleep_.store(false);
    }
    if (RealClock().MonotonicNanos() >= next_tick) {
      Tick();
      next_tick = RealClock().MonotonicNanos() + kTickNanos;
    }
  }
}

bool SharedMemoryTransport::WorkOnRings() {
  bool is_left = false;
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    if (peer->Drain(kTurnBytes)) is_left = true;
    if (peer->Pump(kTurnBytes, /*announces=*/true)) is_left = true;
    if (peer->FinishLoss()) is_left = true;
  }
  return is_left;
}

bool SharedMemoryTransport::HasWork() {
  bool found = false;
  for (const auto& peer : peers_) {
    // Threads that assist say so themselves, when they leave.
    if (peer == nullptr || peer->is_assisted()) continue;
    peer->AnnounceSleep();
    if (peer->can_read()) found = true;
  }
  return found;
}

void SharedMemoryTransport::Poll(int milliseconds) {
  std::vector<pollfd>& polled = polled_;
  std::vector<std::pair<RingPeer*, Direction>>& connections = polled_connections_;
  polled.clear();
  connections.clear();
  polled.push_back({wake_.get(), POLLIN, 0});
  polled.push_back({listener_->socket(), POLLIN, 0});
  for (const Stranger& stranger : strangers_) {
    polled.push_back({stranger.connection.get(), POLLIN, 0});
  }
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    for (const Direction direction : {Direction::kOutgoing, Direction::kIncoming}) {
      const FileDescriptor* const open = peer->Open(direction);
      if (open == nullptr) continue;
      connections.emplace_back(peer.get(), direction);
      polled.push_back({open->get(), POLLIN, 0});
    }
  }
  const size_t first = polled.size() - connections.size();
  if (poll(polled.data(), polled.size(), milliseconds) <= 0) return;
  if (polled[0].revents != 0) {
    uint64_t count = 0;
    static_cast<void>(!read(wake_.get(), &count, sizeof(count)));
  }
  std::erase_if(strangers_, [this](Stranger& stranger) { return Admit(stranger); });
  if (polled[1].revents != 0) AcceptConnections();
  for (size_t i = 0; i < connections.size(); ++i) {
    if (polled[first + i].revents == 0) continue;
    TakeNotices(*connections[i].first, connections[i].second);
  }
}

void SharedMemoryTransport::AcceptConnections() {
  while (std::optional<FileDescriptor> connection = listener_->Accept()) {
    Stranger stranger{*std::move(connection)};
    if (!Admit(stranger) && strangers_.size() < kMaxStrangers) {
      strangers_.push_back(std::move(stranger));
    }
  }
}

bool SharedMemoryTransport::Admit(Stranger& stranger) {
  absl::StatusOr<ReceivedGreeting> greeting = ReceiveGreeting(stranger.connection);
  if (!greeting.ok() && absl::IsUnavailable(greeting.status())) return false;
  const absl::Status admitted =
      greeting.ok() ? Attach(*greeting, stranger.connection) : greeting.status();
  if (!admitted.ok()) {
    Log(LogLevel::kWarning, "refused a ring in shared memory: ", admitted.ToString());
    if (stranger.connection.valid()) Notify(stranger.connection, Kind::kRefuse, admitted);
  }
  return true;
}

absl::Status SharedMemoryTransport::Attach(ReceivedGreeting& greeting, FileDescriptor& connection) {
  const RingGreeting& from = greeting.greeting;
  // Strangers are not told which job this is.
  if (!SameToken(from.token, job_.token)) {
    return absl::UnauthenticatedError("the token of this worker differs");
  }
  if (from.job_id != job_.job_id) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stale peer: the ring is of job ", from.job_id, ", this worker is in job ", job_.job_id));
  }
  const bool is_peer = from.to == job_.rank && from.from.valid() &&
                       static_cast<size_t>(from.from.value) < peers_.size() &&
                       peers_[static_cast<size_t>(from.from.value)] != nullptr &&
                       job_.may_be_here[static_cast<size_t>(from.from.value)];
  if (!is_peer) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", from.from.value, " shares no memory with rank ", job_.rank.value, " in this job"));
  }
  RingPeer& peer = *peers_[static_cast<size_t>(from.from.value)];
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<RingReader> reader, RingReader::Open(greeting.ring_file));
  WEFT_RETURN_IF_ERROR(peer.AttachInbox());
  peer.OpenIncoming(std::move(connection), std::move(reader));
  if (std::string reason; IsAborted(reason)) peer.Tell(Kind::kAbort, absl::AbortedError(reason));
  has_work_.store(true);
  return absl::OkStatus();
}

void SharedMemoryTransport::TakeNotices(RingPeer& peer, Direction direction) {
  while (const FileDescriptor* const open = peer.Open(direction)) {
    const absl::StatusOr<std::optional<RingNotice>> taken = TakeNotice(*open);
    if (!taken.ok()) {
      peer.MarkEnded(direction);
      const auto text = direction == Direction::kOutgoing
                            ? absl::StrCat("rank ", job_.rank.value, " lost ", peer.name(), ": ",
                                           taken.status().message())
                            : absl::StrCat(peer.name(), " is lost: ", taken.status().message());
      return peer.Lose(absl::UnavailableError(text));
    }
    if (!taken->has_value()) return;
    const RingNotice& notice = **taken;
    peer.Hear(direction);
    switch (notice.kind) {
      case Kind::kWake:
      case Kind::kBeat:
        break;
      case Kind::kAbort:
        AbortAll(std::string(notice.status.message()));
        break;
      case Kind::kRefuse:
        peer.MarkEnded(direction);
        return peer.Lose(notice.status.ok() ? absl::UnknownError("no reason") : notice.status);
      case Kind::kClose: {
        peer.MarkEnded(direction);
        const absl::Status left =
            absl::UnavailableError(absl::StrCat(peer.name(), " has left the job"));
        // What it sent before may still be on its way.
        if (direction == Direction::kOutgoing) {
          peer.outbox().Fail(left);
        } else {
          peer.Lose(left, /*has_left=*/true);
        }
        return;
      }
    }
  }
}

void SharedMemoryTransport::Tick() {
  std::erase_if(strangers_, [](Stranger& stranger) { return ++stranger.ticks > kStrangerTicks; });
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    peer->Tell(Kind::kBeat);
    for (const Direction direction : {Direction::kOutgoing, Direction::kIncoming}) {
      if (!peer->TickSilence(direction)) continue;
      peer->MarkEnded(direction);
      peer->Lose(absl::UnavailableError(
          absl::StrCat("rank ", job_.rank.value, " lost ", peer->name(),
                       ": it is connected and does not answer (is its process stopped?)")));
    }
  }
}

}  // namespace weft
