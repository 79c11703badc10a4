// Transport: moves messages between ranks. In-process for threads of one process, gRPC for
// processes, shared memory for those of one machine; a fault-injecting one in testing/.
// distributed/transport_communicator.h makes a Communicator of it.
#ifndef WEFT_DISTRIBUTED_TRANSPORT_H_
#define WEFT_DISTRIBUTED_TRANSPORT_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "graph/ids.h"
#include "tensor/dtype.h"

namespace weft {

// What every message says about itself; checked by the receiver against what it expects.
struct MessageHeader {
  uint64_t job_id = 0;       // of the cluster: a new one for each job
  uint64_t incarnation = 0;  // of the sending process
  uint32_t stream = 0;       // channel or collective edge, numbered at opening
  uint64_t sequence = 0;     // on this stream, from 0
  int64_t step = 0;
  int32_t micro_batch = -1;
  DType dtype = DType::kInvalid;
  uint64_t elements = 0;
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3-64 of the payload
};

// DataLoss naming the first field in which a header that arrived from `peer` differs from the one
// its receiver expects (incarnation and checksum are the transport's to check).
absl::Status CheckHeader(RankId peer, const MessageHeader& expected, const MessageHeader& actual);

// A slot that payloads of one stream arrive in or leave from. The transport calls `Done` exactly
// once per posted operation, from any thread, also on abort; it must not block or throw.
class TransferObserver {
 public:
  virtual ~TransferObserver() = default;
  virtual void Done(const absl::Status& status) = 0;
};

// Thread-safe. Posts never block and, once their stream has been used before, allocate nothing of
// ours.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual RankId rank() const = 0;
  // Queues a message. `data` must stay until `observer.Done`: the bytes have left (or never will).
  virtual void Send(RankId peer, const MessageHeader& header, const void* data,
                    TransferObserver& observer) = 0;
  // Takes the next message of (peer, header.stream) into `data`; the arriving header must equal
  // `header` but for incarnation and checksum, which are checked too. Either side may come first.
  virtual void Receive(RankId peer, const MessageHeader& header, void* data,
                       TransferObserver& observer) = 0;
  // For a thread that waits for a transfer with `peer`: may do the transport's work on it in this
  // thread, until `is_under_way` is false, or for a short time in which nothing comes. `alone`:
  // the rank computes nothing meanwhile. Any number of threads. A transport that has threads of its
  // own for all of it does nothing here.
  virtual void Assist(RankId peer, const std::atomic<bool>& is_under_way, bool alone) {
    static_cast<void>(peer);
    static_cast<void>(is_under_way);
    static_cast<void>(alone);
  }
  // All pending and future operations of this rank end with Aborted carrying `reason`; peers are
  // told.
  virtual void Abort(const absl::Status& reason) = 0;
  virtual int64_t bytes_sent() const = 0;  // payload
  // Headers of ours that went with it; 0 where messages need none.
  virtual int64_t header_bytes_sent() const { return 0; }
  // Most bytes of messages of one peer that it keeps until they are asked for; 0: it keeps none.
  virtual int64_t unexpected_bytes_limit() const { return 0; }
  // Most memory that it shares with its peers, by both directions of each; 0: it shares none.
  virtual int64_t ring_bytes() const { return 0; }
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_TRANSPORT_H_
