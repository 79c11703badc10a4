#include "distributed/transport_communicator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/recovery/lost_peer.h"
#include "executor/interfaces/wait_info.h"
#include "executor/memory/unexpected_messages.h"
#include "executor/program/memory_operations.h"
#include "platform/checksum.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Streams of collectives have the top bit set, so that they never meet a channel's.
constexpr uint32_t kCollectiveStream = uint32_t{1} << 31;

bool Overlap(const BufferRange& a, const BufferRange& b) {
  return a.buffer == b.buffer && a.first < b.first + b.count && b.first < a.first + a.count;
}

}  // namespace

class TransportCommunicator::Transfer final : public TransferObserver {
 public:
  void Start() {
    MutexLock lock(mutex_);
    busy_.store(true, std::memory_order_relaxed);
    status_ = absl::OkStatus();
  }
  void Done(const absl::Status& status) override {
    MutexLock lock(mutex_);
    status_ = status;
    busy_.store(false, std::memory_order_release);
    changed_.NotifyAll();
  }
  bool busy() const { return busy_.load(std::memory_order_acquire); }
  const std::atomic<bool>& is_under_way() const { return busy_; }
  // DeadlineExceeded, without words, if it is still under way at `deadline`.
  absl::Status Wait(Clock& clock, absl::Time deadline) {
    MutexLock lock(mutex_);
    while (busy()) {
      if (!clock.WaitUntil(changed_, mutex_, deadline) && busy()) {
        return absl::DeadlineExceededError("");
      }
    }
    return status_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::atomic<bool> busy_{false};  // written under the lock
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

TransportCommunicator::TransportCommunicator(Transport& transport, Clock& clock,
                                             JobIdentity identity, absl::Duration stall_timeout)
    : transport_(transport), clock_(clock), identity_(identity), stall_timeout_(stall_timeout) {}

// Transfers in flight point into this object: end them first.
TransportCommunicator::~TransportCommunicator() { EndTransfers(); }

void TransportCommunicator::EndTransfers() {
  std::vector<Transfer*> transfers;
  for (auto& [id, stream] : streams_) {
    transfers.insert(transfers.end(), {stream->sending.get(), stream->receiving.get()});
  }
  for (auto& collective : collectives_) {
    for (auto& send : collective->sends) {
      if (send != nullptr) transfers.push_back(send.get());
    }
    transfers.push_back(collective->receiving.get());
  }
  const bool idle = std::none_of(transfers.begin(), transfers.end(),
                                 [](Transfer* transfer) { return transfer->busy(); });
  if (!idle) transport_.Abort(absl::CancelledError("the communicator is closed"));
  for (Transfer* transfer : transfers) {
    transfer->Wait(clock_, absl::InfiniteFuture()).IgnoreError();
  }
}

MessageHeader TransportCommunicator::HeaderOf(uint32_t stream, DType dtype,
                                              int64_t elements) const {
  MessageHeader header;
  header.job_id = identity_.job_id;
  header.incarnation = identity_.incarnation;
  header.stream = stream;
  header.dtype = dtype;
  header.elements = static_cast<uint64_t>(elements);
  header.bytes = static_cast<uint64_t>(DTypeBytes(dtype, elements));
  return header;
}

absl::StatusOr<Communicator::ChannelHandle> TransportCommunicator::OpenChannel(
    const Channel& channel) {
  if (channel.from != rank() && channel.to != rank()) {
    return absl::InternalError(absl::StrCat("rank ", rank().value, " has no end of channel ",
                                            channel.id.value, " ('", channel.value, "')"));
  }
  std::unique_ptr<Stream>& stream = streams_[{channel.id.value, channel.from, channel.to}];
  if (stream == nullptr) {
    stream = std::make_unique<Stream>();
    stream->id = static_cast<uint32_t>(channel.id.value);
    stream->sending = std::make_unique<Transfer>();
    stream->receiving = std::make_unique<Transfer>();
  }
  auto opened = std::make_unique<OpenedChannel>();
  opened->channel = channel;
  opened->description = absl::StrCat("tensor '", channel.value, "'");
  opened->stream = stream.get();
  opened->header = HeaderOf(stream->id, channel.dtype, channel.shape.num_elements());
  channels_.push_back(std::move(opened));
  opened_.push_back({true, static_cast<ChannelHandle>(channels_.size()) - 1});
  return opened_.back().handle;
}

absl::StatusOr<Communicator::CollectiveHandle> TransportCommunicator::OpenCollective(
    const CollectiveSpec& spec) {
  auto opened = std::make_unique<OpenedCollective>();
  opened->spec = spec;
  opened->description = absl::StrCat(spec.tensors, spec.tensors.empty() ? "" : " of ",
                                     "collective '", spec.name, "'");
  std::string key;
  for (const RankId member : spec.group) absl::StrAppend(&key, member.value, " ");
  absl::StrAppend(&key, spec.name);
  // Members open collectives of other names in orders of their own: a rank without micro-batches
  // has no gradients that could be summed beside them.
  absl::StrAppend(&key, "#", opened_by_name_[key]++);
  const uint64_t hash = Checksum(std::as_bytes(std::span<const char>(key)));
  opened->stream_id = kCollectiveStream | static_cast<uint32_t>(hash);
  for (const auto& other : collectives_) {
    if (other->stream_id == opened->stream_id) {
      return absl::InternalError(absl::StrCat("collectives '", spec.name, "' and '",
                                              other->spec.name, "' have the same stream"));
    }
  }
  for (const CollectiveStep& step : spec.schedule.steps) {
    opened->sends.push_back(step.kind == CollectiveStep::Kind::kSend ? std::make_unique<Transfer>()
                                                                     : nullptr);
    if (step.peer >= 0) opened->sent_to[step.peer] = opened->received_from[step.peer] = 0;
  }
  opened->receiving = std::make_unique<Transfer>();
  collectives_.push_back(std::move(opened));
  opened_.push_back({false, static_cast<CollectiveHandle>(collectives_.size()) - 1});
  return opened_.back().handle;
}

absl::Status TransportCommunicator::Wait(Transfer& transfer, Direction direction,
                                         const std::string& what, MessageKey key, RankId peer,
                                         bool alone) {
  if (transfer.busy()) transport_.Assist(peer, transfer.is_under_way(), alone);
  absl::Status status = transfer.Wait(clock_, clock_.Now() + stall_timeout_);
  return status.ok() ? status : WaitError(status, direction, what, key, peer);
}

absl::Status TransportCommunicator::WaitError(const absl::Status& status, Direction direction,
                                              const std::string& what, MessageKey key,
                                              RankId peer) const {
  const bool sends = direction == Direction::kSend;
  // A message that has not left its memory keeps the channel's credit.
  const std::string waited = sends ? absl::StrCat("a credit to send ", what) : what;
  const WaitInfo note{waited, "", absl::StrCat(sends ? "to" : "from", " worker:", peer.value)};
  const std::string under_way = absl::StrCat(
      waited, sends ? " to" : " from", " rank ", peer.value, " (step ", key.step,
      key.micro_batch >= 0 ? absl::StrCat(", micro-batch ", key.micro_batch) : "", ")");
  if (absl::IsUnavailable(status)) {
    return WithLostPeer(WithWaitInfo(absl::UnavailableError(absl::StrCat(
                                         status.message(), "; under way was ", under_way)),
                                     note),
                        peer);
  }
  if (!absl::IsDeadlineExceeded(status)) return WithWaitInfo(status, note);
  return WithWaitInfo(
      absl::DeadlineExceededError(
          absl::StrCat("rank ", rank().value, " waited ", absl::FormatDuration(stall_timeout_),
                       " for ", under_way, "; if steps may take that long, raise --stall-timeout")),
      note);
}

absl::Status TransportCommunicator::Send(ChannelHandle handle, MessageKey key, const void* data) {
  OpenedChannel& channel = *channels_[handle];
  WEFT_RETURN_IF_ERROR(WaitSent(handle));
  MessageHeader header = channel.header;
  header.sequence = channel.stream->sent++;
  header.step = key.step;
  header.micro_batch = key.micro_batch;
  channel.last_sent = key;
  channel.sent.Count(header);
  channel.stream->sending->Start();
  transport_.Send(channel.channel.to, header, data, *channel.stream->sending);
  return absl::OkStatus();
}

absl::Status TransportCommunicator::WaitSent(ChannelHandle handle) {
  OpenedChannel& channel = *channels_[handle];
  return Wait(*channel.stream->sending, Direction::kSend, channel.description, channel.last_sent,
              channel.channel.to, /*alone=*/true);
}

absl::Status TransportCommunicator::Receive(ChannelHandle handle, MessageKey key, void* data) {
  OpenedChannel& channel = *channels_[handle];
  MessageHeader header = channel.header;
  header.sequence = channel.stream->received++;
  header.step = key.step;
  header.micro_batch = key.micro_batch;
  Transfer& transfer = *channel.stream->receiving;
  transfer.Start();
  transport_.Receive(channel.channel.from, header, data, transfer);
  return Wait(transfer, Direction::kReceive, channel.description, key, channel.channel.from,
              /*alone=*/true);
}

absl::Status TransportCommunicator::WaitForReaders(OpenedCollective& collective, size_t index,
                                                   const BufferRange& range, MessageKey key) {
  const std::vector<CollectiveStep>& steps = collective.spec.schedule.steps;
  for (size_t i = 0; i < index; ++i) {
    if (collective.sends[i] == nullptr || !Overlap(steps[i].source, range)) continue;
    WEFT_RETURN_IF_ERROR(Wait(*collective.sends[i], Direction::kSend, collective.description, key,
                              collective.spec.group[steps[i].peer], collective.alone()));
  }
  return absl::OkStatus();
}

bool TransportCommunicator::MayReceiveBefore(OpenedCollective& collective, size_t index) const {
  const std::vector<CollectiveStep>& steps = collective.spec.schedule.steps;
  if (index + 1 >= steps.size() || steps[index + 1].kind != CollectiveStep::Kind::kReceive) {
    return false;
  }
  const BufferRange& target = steps[index + 1].target;
  if (Overlap(steps[index].source, target)) return false;
  for (size_t i = 0; i < index; ++i) {
    if (collective.sends[i] != nullptr && Overlap(steps[i].source, target) &&
        collective.sends[i]->busy()) {
      return false;
    }
  }
  return true;
}

void TransportCommunicator::PostReceive(OpenedCollective& collective, size_t index, MessageKey key,
                                        void* const* buffers) {
  const CollectiveStep& step = collective.spec.schedule.steps[index];
  const DType dtype = collective.spec.dtype;
  MessageHeader header = HeaderOf(collective.stream_id, dtype, step.target.count);
  header.sequence = collective.received_from[step.peer]++;
  header.step = key.step;
  header.micro_batch = key.micro_batch;
  collective.receiving->Start();
  collective.receive_is_posted = true;
  transport_.Receive(
      collective.spec.group[step.peer], header,
      static_cast<char*>(buffers[step.target.buffer]) + DTypeBytes(dtype, step.target.first),
      *collective.receiving);
}

absl::Status TransportCommunicator::RunStep(OpenedCollective& collective, size_t index,
                                            MessageKey key, void* const* buffers) {
  const CollectiveStep& step = collective.spec.schedule.steps[index];
  const DType dtype = collective.spec.dtype;
  const auto at = [&](const BufferRange& range) {
    return static_cast<char*>(buffers[range.buffer]) + DTypeBytes(dtype, range.first);
  };
  if (step.kind == CollectiveStep::Kind::kSend) {
    if (MayReceiveBefore(collective, index)) PostReceive(collective, index + 1, key, buffers);
    MessageHeader header = HeaderOf(collective.stream_id, dtype, step.source.count);
    header.sequence = collective.sent_to[step.peer]++;
    header.step = key.step;
    header.micro_batch = key.micro_batch;
    collective.sent.Count(header);
    collective.sends[index]->Start();
    transport_.Send(collective.spec.group[step.peer], header, at(step.source),
                    *collective.sends[index]);
    return absl::OkStatus();
  }
  const bool is_posted = std::exchange(collective.receive_is_posted, false);
  if (!is_posted) WEFT_RETURN_IF_ERROR(WaitForReaders(collective, index, step.target, key));
  switch (step.kind) {
    case CollectiveStep::Kind::kReduce:
      return AddInto(dtype, step.target.count, at(step.source), at(step.target));
    case CollectiveStep::Kind::kCopy:
      std::memmove(at(step.target), at(step.source),
                   static_cast<size_t>(DTypeBytes(dtype, step.target.count)));
      return absl::OkStatus();
    default:
      break;
  }
  if (!is_posted) PostReceive(collective, index, key, buffers);
  collective.receive_is_posted = false;
  return Wait(*collective.receiving, Direction::kReceive, collective.description, key,
              collective.spec.group[step.peer], collective.alone());
}

absl::Status TransportCommunicator::RunCollective(CollectiveHandle handle, MessageKey key,
                                                  void* const* buffers) {
  OpenedCollective& collective = *collectives_[handle];
  const size_t count = collective.spec.schedule.steps.size();
  for (size_t i = 0; i < count; ++i) {
    WEFT_RETURN_IF_ERROR(RunStep(collective, i, key, buffers));
  }
  // The caller may reuse the buffers.
  for (size_t i = 0; i < count; ++i) {
    if (collective.sends[i] == nullptr) continue;
    WEFT_RETURN_IF_ERROR(Wait(*collective.sends[i], Direction::kSend, collective.description, key,
                              collective.spec.group[collective.spec.schedule.steps[i].peer],
                              collective.alone()));
  }
  return absl::OkStatus();
}

std::vector<StreamTraffic> TransportCommunicator::traffic() const {
  std::vector<StreamTraffic> traffic;
  for (const Opened& opened : opened_) {
    if (opened.is_channel) {
      const OpenedChannel& channel = *channels_[opened.handle];
      traffic.push_back({channel.channel.value, channel.channel.to, channel.sent.messages,
                         channel.sent.payload_bytes});
    } else {
      const OpenedCollective& collective = *collectives_[opened.handle];
      traffic.push_back({collective.spec.name, RankId(), collective.sent.messages,
                         collective.sent.payload_bytes});
    }
  }
  return traffic;
}

int64_t TransportCommunicator::unexpected_collective_bytes(RankId peer) const {
  std::vector<const CollectiveSpec*> specs;
  for (const auto& collective : collectives_) specs.push_back(&collective->spec);
  return UnexpectedCollectiveBytes(specs, peer);
}

void TransportCommunicator::Abort(const absl::Status& reason) { transport_.Abort(reason); }

}  // namespace weft
