// FaultInjectingTransport: any transport, with faults at given messages.
#ifndef WEFT_DISTRIBUTED_TESTING_FAULT_INJECTING_TRANSPORT_H_
#define WEFT_DISTRIBUTED_TESTING_FAULT_INJECTING_TRANSPORT_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "distributed/transport.h"
#include "platform/mutex.h"

namespace weft::testing {

// What happens to one message.
struct TransportFault {
  enum class Kind {
    kDrop,            // leaves its memory, and never arrives
    kDelay,           // goes on only after `later_sends` more messages of this rank
    kDuplicate,       // arrives twice
    kTruncate,        // arrives with half of its bytes
    kStaleJob,        // says that it belongs to the job before
    kLosePeer,        // never arrives; from it on, all with that peer ends as with a lost one
    kWithholdCredit,  // arrives, but its memory is never given back: a credit too few
    kFlip,            // arrives with a bit of its first byte flipped
  };
  Kind kind = Kind::kDrop;
  int64_t message = 0;  // the how manieth Send of this rank, from 0
  int later_sends = 1;  // for kDelay
};

// "drop@7", "delay@3+2" (after 2 later sends), "duplicate@0", "truncate@1", "stale_job@4",
// "lose_peer@6", "withhold_credit@5", "flip@2"; several with commas between.
absl::StatusOr<std::vector<TransportFault>> ParseTransportFaults(const std::string& text);

// Decorates a transport for one rank; faults strike what that rank sends. Thread-safe. Whatever the
// fault, every operation is told its end once at the latest when the job is aborted, here or by a
// peer. Uses the stream numbers just below 2^31 for itself.
class FaultInjectingTransport final : public Transport {
 public:
  // Borrows `inner`.
  FaultInjectingTransport(Transport& inner, const std::vector<TransportFault>& faults);
  FaultInjectingTransport(std::unique_ptr<Transport> inner,
                          const std::vector<TransportFault>& faults);
  // Aborts the inner transport when it still holds something back.
  ~FaultInjectingTransport() override;

  RankId rank() const override { return inner_.rank(); }
  void Send(RankId peer, const MessageHeader& header, const void* data,
            TransferObserver& observer) override;
  void Receive(RankId peer, const MessageHeader& header, void* data,
               TransferObserver& observer) override;
  void Assist(RankId peer, const std::atomic<bool>& is_under_way, bool alone) override {
    inner_.Assist(peer, is_under_way, alone);
  }
  void Abort(const absl::Status& reason) override { inner_.Abort(reason); }
  int64_t bytes_sent() const override { return inner_.bytes_sent(); }
  int64_t header_bytes_sent() const override { return inner_.header_bytes_sent(); }
  // Faults that have struck.
  int64_t struck();

 private:
  // A receive that nobody sends to: it ends when the job does, or the peer is lost.
  class Sentinel;
  // A message whose sender is told of the sentinel's end instead of its own.
  class Withheld;
  // A message that has not gone on yet.
  class Delayed;
  // A copy that has an owner of its own.
  class Copy;

  void Strike(const TransportFault& fault, RankId peer, const MessageHeader& header,
              const void* data, TransferObserver& observer);
  void SendCopy(RankId peer, const MessageHeader& header, const void* data, bool flips);
  void Watch(RankId peer, const MessageHeader& header, Sentinel& sentinel);
  absl::Status Lost(RankId peer) const;
  bool IsLost(RankId peer);
  // Delayed messages whose time has come.
  void PassOn();

  const std::unique_ptr<Transport> owned_;
  Transport& inner_;
  const std::multimap<int64_t, TransportFault> faults_;  // by message
  Mutex mutex_;
  int64_t sends_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t struck_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<int32_t> lost_ ABSL_GUARDED_BY(mutex_);  // peers
  uint32_t next_stream_ ABSL_GUARDED_BY(mutex_) = (uint32_t{1} << 31) - 1;
  std::vector<std::unique_ptr<Sentinel>> sentinels_ ABSL_GUARDED_BY(mutex_);
  std::vector<Delayed*> delayed_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Copy>> copies_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::testing

#endif  // WEFT_DISTRIBUTED_TESTING_FAULT_INJECTING_TRANSPORT_H_
