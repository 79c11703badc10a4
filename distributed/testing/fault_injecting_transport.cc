#include "distributed/testing/fault_injecting_transport.h"

#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

using Kind = TransportFault::Kind;

std::multimap<int64_t, TransportFault> ByMessage(const std::vector<TransportFault>& faults) {
  std::multimap<int64_t, TransportFault> by_message;
  for (const TransportFault& fault : faults) by_message.insert({fault.message, fault});
  return by_message;
}

}  // namespace

absl::StatusOr<std::vector<TransportFault>> ParseTransportFaults(const std::string& text) {
  static const std::map<std::string, Kind> kKinds = {{"drop", Kind::kDrop},
                                                     {"delay", Kind::kDelay},
                                                     {"duplicate", Kind::kDuplicate},
                                                     {"truncate", Kind::kTruncate},
                                                     {"stale_job", Kind::kStaleJob},
                                                     {"lose_peer", Kind::kLosePeer},
                                                     {"withhold_credit", Kind::kWithholdCredit},
                                                     {"flip", Kind::kFlip}};
  std::vector<TransportFault> faults;
  for (const absl::string_view entry : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(entry, absl::ByAnyChar("@+"));
    const auto kind = kKinds.find(parts[0]);
    TransportFault fault;
    const bool valid = kind != kKinds.end() && (parts.size() == 2 || parts.size() == 3) &&
                       absl::SimpleAtoi(parts[1], &fault.message) && fault.message >= 0 &&
                       (parts.size() == 2 || absl::SimpleAtoi(parts[2], &fault.later_sends));
    if (!valid) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", entry, "' is no transport fault; expected KIND@MESSAGE, as drop@7"));
    }
    fault.kind = kind->second;
    faults.push_back(fault);
  }
  return faults;
}

class FaultInjectingTransport::Sentinel : public TransferObserver {
 public:
  virtual ~Sentinel() = default;
  // Waits for the end of everything that points here.
  virtual void AwaitEnd() = 0;
};

class FaultInjectingTransport::Withheld final : public Sentinel {
 public:
  explicit Withheld(TransferObserver& observer) : observer_(observer), sent_(*this) {}
  TransferObserver& sent() { return sent_; }
  // The sentinel.
  void Done(const absl::Status& status) override {
    {
      MutexLock lock(mutex_);
      status_ = status;
    }
    End();
  }
  void AwaitEnd() override {
    MutexLock lock(mutex_);
    while (open_ > 0) changed_.Wait(mutex_);
  }

 private:
  class SentObserver final : public TransferObserver {
   public:
    explicit SentObserver(Withheld& owner) : owner_(owner) {}
    void Done(const absl::Status&) override { owner_.End(); }

   private:
    Withheld& owner_;
  };
  // The sender hears of it when both the message and the sentinel have ended.
  void End() {
    absl::Status status;
    {
      MutexLock lock(mutex_);
      if (--parts_ > 0) return;
      status = status_;
    }
    observer_.Done(status);
    MutexLock lock(mutex_);
    open_ = 0;
    changed_.NotifyAll();
  }

  TransferObserver& observer_;
  SentObserver sent_;
  Mutex mutex_;
  CondVar changed_;
  int parts_ ABSL_GUARDED_BY(mutex_) = 2;
  int open_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

class FaultInjectingTransport::Delayed final : public Sentinel {
 public:
  Delayed(RankId peer, const MessageHeader& header, const void* data, TransferObserver& observer,
          int later_sends)
      : later_sends(later_sends), peer_(peer), header_(header), data_(data), observer_(&observer) {}
  // Under the owner's lock.
  int later_sends;

  void PassOn(Transport& transport) {
    if (TransferObserver* const observer = Take()) {
      transport.Send(peer_, header_, data_, *observer);
    }
  }
  // The sentinel.
  void Done(const absl::Status& status) override {
    if (TransferObserver* const observer = Take()) observer->Done(status);
    MutexLock lock(mutex_);
    open_ = false;
    changed_.NotifyAll();
  }
  void AwaitEnd() override {
    MutexLock lock(mutex_);
    while (open_) changed_.Wait(mutex_);
  }

 private:
  // Whoever comes first answers for the message.
  TransferObserver* Take() {
    MutexLock lock(mutex_);
    return std::exchange(observer_, nullptr);
  }

  const RankId peer_;
  const MessageHeader header_;
  const void* const data_;
  Mutex mutex_;
  CondVar changed_;
  TransferObserver* observer_ ABSL_GUARDED_BY(mutex_);
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
};

class FaultInjectingTransport::Copy final : public TransferObserver {
 public:
  Copy(const void* data, uint64_t bytes) : bytes_(bytes) {
    if (bytes > 0) std::memcpy(bytes_.data(), data, bytes);
  }
  void Flip() {
    if (!bytes_.empty()) bytes_.front() ^= std::byte{1};
  }
  const void* data() const { return bytes_.data(); }
  void Done(const absl::Status&) override {
    MutexLock lock(mutex_);
    open_ = false;
    changed_.NotifyAll();
  }
  bool open() {
    MutexLock lock(mutex_);
    return open_;
  }
  void AwaitEnd() {
    MutexLock lock(mutex_);
    while (open_) changed_.Wait(mutex_);
  }

 private:
  std::vector<std::byte> bytes_;
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
};

FaultInjectingTransport::FaultInjectingTransport(Transport& inner,
                                                 const std::vector<TransportFault>& faults)
    : inner_(inner), faults_(ByMessage(faults)) {}

FaultInjectingTransport::FaultInjectingTransport(std::unique_ptr<Transport> inner,
                                                 const std::vector<TransportFault>& faults)
    : owned_(std::move(inner)), inner_(*owned_), faults_(ByMessage(faults)) {}

FaultInjectingTransport::~FaultInjectingTransport() {
  std::vector<std::unique_ptr<Sentinel>> sentinels;
  std::vector<std::unique_ptr<Copy>> copies;
  {
    MutexLock lock(mutex_);
    sentinels = std::move(sentinels_);
    copies = std::move(copies_);
  }
  bool open = !sentinels.empty();
  for (const auto& copy : copies) open |= copy->open();
  if (open) inner_.Abort(absl::CancelledError("the fault-injecting transport is closed"));
  for (const auto& sentinel : sentinels) sentinel->AwaitEnd();
  for (const auto& copy : copies) copy->AwaitEnd();
}

int64_t FaultInjectingTransport::struck() {
  MutexLock lock(mutex_);
  return struck_;
}

void FaultInjectingTransport::Send(RankId peer, const MessageHeader& header, const void* data,
                                   TransferObserver& observer) {
  std::optional<TransportFault> fault;
  {
    MutexLock lock(mutex_);
    const auto found = faults_.find(sends_++);
    if (found != faults_.end()) {
      fault = found->second;
      ++struck_;
    }
    for (Delayed* delayed : delayed_) --delayed->later_sends;
  }
  if (IsLost(peer)) return observer.Done(Lost(peer));
  if (fault.has_value()) {
    Strike(*fault, peer, header, data, observer);
  } else {
    inner_.Send(peer, header, data, observer);
  }
  PassOn();
}

void FaultInjectingTransport::Receive(RankId peer, const MessageHeader& header, void* data,
                                      TransferObserver& observer) {
  if (IsLost(peer)) return observer.Done(Lost(peer));
  inner_.Receive(peer, header, data, observer);
}

absl::Status FaultInjectingTransport::Lost(RankId peer) const {
  return absl::UnavailableError(
      absl::StrCat("rank ", rank().value, " lost rank ", peer.value, ": the test wants it"));
}

bool FaultInjectingTransport::IsLost(RankId peer) {
  MutexLock lock(mutex_);
  return lost_.contains(peer.value);
}

void FaultInjectingTransport::Strike(const TransportFault& fault, RankId peer,
                                     const MessageHeader& header, const void* data,
                                     TransferObserver& observer) {
  MessageHeader changed = header;
  switch (fault.kind) {
    case Kind::kDrop:
      return observer.Done(absl::OkStatus());
    case Kind::kLosePeer: {
      {
        MutexLock lock(mutex_);
        lost_.insert(peer.value);
      }
      return observer.Done(Lost(peer));
    }
    case Kind::kDelay: {
      auto delayed = std::make_unique<Delayed>(peer, header, data, observer, fault.later_sends);
      Delayed& message = *delayed;
      {
        MutexLock lock(mutex_);
        delayed_.push_back(&message);
        sentinels_.push_back(std::move(delayed));
      }
      return Watch(peer, header, message);
    }
    case Kind::kDuplicate:
      SendCopy(peer, header, data, /*flips=*/false);
      return inner_.Send(peer, header, data, observer);
    case Kind::kFlip:
      SendCopy(peer, header, data, /*flips=*/true);
      return observer.Done(absl::OkStatus());
    case Kind::kTruncate:
      changed.bytes /= 2;
      return inner_.Send(peer, changed, data, observer);
    case Kind::kStaleJob:
      --changed.job_id;
      return inner_.Send(peer, changed, data, observer);
    case Kind::kWithholdCredit: {
      auto withheld = std::make_unique<Withheld>(observer);
      Withheld& message = *withheld;
      {
        MutexLock lock(mutex_);
        sentinels_.push_back(std::move(withheld));
      }
      inner_.Send(peer, header, data, message.sent());
      return Watch(peer, header, message);
    }
  }
}

void FaultInjectingTransport::SendCopy(RankId peer, const MessageHeader& header, const void* data,
                                       bool flips) {
  auto copy = std::make_unique<Copy>(data, header.bytes);
  if (flips) copy->Flip();
  Copy& message = *copy;
  {
    MutexLock lock(mutex_);
    copies_.push_back(std::move(copy));
  }
  inner_.Send(peer, header, message.data(), message);
}

void FaultInjectingTransport::Watch(RankId peer, const MessageHeader& header, Sentinel& sentinel) {
  MessageHeader nothing;
  nothing.job_id = header.job_id;
  nothing.dtype = header.dtype;
  {
    MutexLock lock(mutex_);
    nothing.stream = next_stream_--;
  }
  inner_.Receive(peer, nothing, nullptr, sentinel);
}

void FaultInjectingTransport::PassOn() {
  std::vector<Delayed*> due;
  {
    MutexLock lock(mutex_);
    std::erase_if(delayed_, [&](Delayed* delayed) {
      if (delayed->later_sends > 0) return false;
      due.push_back(delayed);
      return true;
    });
  }
  for (Delayed* delayed : due) delayed->PassOn(inner_);
}

}  // namespace weft::testing
