#include "distributed/in_process_transport.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/schedule/channel_credits.h"

namespace weft {

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(InProcessHub& hub, RankId rank) : hub_(hub), rank_(rank) {}
  RankId rank() const override { return rank_; }

  void Send(RankId peer, const MessageHeader& header, const void* data,
            TransferObserver& observer) override {
    hub_.Post({rank_.value, peer.value, header.stream}, true, {header, data, nullptr, &observer});
  }
  void Receive(RankId peer, const MessageHeader& header, void* data,
               TransferObserver& observer) override {
    hub_.Post({peer.value, rank_.value, header.stream}, false, {header, nullptr, data, &observer});
  }
  void Abort(const absl::Status& reason) override { hub_.Abort(reason); }
  int64_t bytes_sent() const override {
    MutexLock lock(hub_.mutex_);
    return hub_.bytes_sent_[rank_.value];
  }
  int64_t unexpected_bytes_limit() const override { return static_cast<int64_t>(kInbox.bytes); }

 private:
  InProcessHub& hub_;
  const RankId rank_;
};

std::unique_ptr<Transport> InProcessHub::NewTransport(RankId rank) {
  return std::make_unique<InProcessTransport>(*this, rank);
}

bool InProcessHub::Keep(const StreamKey& key, Stream& stream, Operation& send) {
  Kept& kept = kept_[{std::get<0>(key), std::get<1>(key)}];
  const uint64_t bytes = send.header.bytes;
  if (kept.messages >= kInbox.messages || bytes > kInbox.bytes - kept.bytes) return false;
  ++kept.messages;
  kept.bytes += bytes;
  if (stream.free.empty()) {
    stream.free.push_back(static_cast<int>(stream.kept.size()));
    stream.kept.push_back(std::make_unique<std::vector<std::byte>>());
  }
  send.kept = stream.free.back();
  stream.free.pop_back();
  std::vector<std::byte>& copy = *stream.kept[send.kept];
  copy.resize(bytes);
  if (bytes > 0) std::memcpy(copy.data(), send.source, bytes);
  send.source = copy.data();
  return true;
}

void InProcessHub::Release(const StreamKey& key, const Operation& send) {
  MutexLock lock(mutex_);
  Kept& kept = kept_[{std::get<0>(key), std::get<1>(key)}];
  --kept.messages;
  kept.bytes -= send.header.bytes;
  streams_[key].free.push_back(send.kept);
}

void InProcessHub::Post(const StreamKey& key, bool is_send, const Operation& operation) {
  Operation other;
  absl::Status status;
  bool met = false;
  {
    MutexLock lock(mutex_);
    if (!aborted_.ok()) {
      status = aborted_;
    } else {
      Stream& stream = streams_[key];
      if (is_send) bytes_sent_[std::get<0>(key)] += static_cast<int64_t>(operation.header.bytes);
      Fifo<Operation>& waiting = is_send ? stream.receives : stream.sends;
      met = !waiting.empty();
      if (met) {
        other = waiting.Pop();
      } else {
        Operation posted = operation;
        const bool is_kept = is_send && Keep(key, stream, posted);
        (is_send ? stream.sends : stream.receives).Push(posted);
        if (!is_kept) return;
      }
    }
  }
  if (met) {
    const Operation& send = is_send ? operation : other;
    const Operation& receive = is_send ? other : operation;
    status = CheckHeader(RankId(std::get<0>(key)), receive.header, send.header);
    if (status.ok() && send.header.bytes > 0) {
      std::memcpy(receive.target, send.source, send.header.bytes);
    }
    if (send.kept >= 0) Release(key, send);
    // The sender's bytes have left either way; a misfit is the receiver's to report.
    if (send.kept < 0) other.observer->Done(is_send ? status : absl::OkStatus());
    if (is_send) status = absl::OkStatus();
  }
  operation.observer->Done(status);
}

void InProcessHub::Abort(const absl::Status& reason) {
  std::vector<Operation> pending;
  absl::Status status;
  {
    MutexLock lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = absl::AbortedError(absl::StrCat("the job was aborted: ", reason.message()));
    status = aborted_;
    for (auto& [key, stream] : streams_) {
      while (!stream.sends.empty()) {
        const Operation send = stream.sends.Pop();
        if (send.kept < 0) pending.push_back(send);
      }
      while (!stream.receives.empty()) pending.push_back(stream.receives.Pop());
    }
  }
  for (const Operation& operation : pending) operation.observer->Done(status);
}

}  // namespace weft
