#include "distributed/in_process_transport.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

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

 private:
  InProcessHub& hub_;
  const RankId rank_;
};

std::unique_ptr<Transport> InProcessHub::NewTransport(RankId rank) {
  return std::make_unique<InProcessTransport>(*this, rank);
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
      Fifo<Operation>& waiting = is_send ? stream.receives : stream.sends;
      if (is_send) bytes_sent_[std::get<0>(key)] += static_cast<int64_t>(operation.header.bytes);
      if (waiting.empty()) {
        (is_send ? stream.sends : stream.receives).Push(operation);
        return;
      }
      other = waiting.Pop();
      met = true;
    }
  }
  if (met) {
    const Operation& send = is_send ? operation : other;
    const Operation& receive = is_send ? other : operation;
    status = CheckHeader(RankId(std::get<0>(key)), receive.header, send.header);
    if (status.ok() && send.header.bytes > 0) {
      std::memcpy(receive.target, send.source, send.header.bytes);
    }
    // The sender's bytes have left either way; a misfit is the receiver's to report.
    other.observer->Done(is_send ? status : absl::OkStatus());
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
      while (!stream.sends.empty()) pending.push_back(stream.sends.Pop());
      while (!stream.receives.empty()) pending.push_back(stream.receives.Pop());
    }
  }
  for (const Operation& operation : pending) operation.observer->Done(status);
}

}  // namespace weft
