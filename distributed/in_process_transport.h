// Transport between threads of one process: a local cluster without sockets, and the reference
// implementation for tests.
#ifndef WEFT_DISTRIBUTED_IN_PROCESS_TRANSPORT_H_
#define WEFT_DISTRIBUTED_IN_PROCESS_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "distributed/fifo.h"
#include "distributed/transport.h"
#include "platform/mutex.h"

namespace weft {

// Where the ranks of one process meet. A message whose receiver is there is copied once, from the
// sender's memory to the receiver's. One that comes early is kept, as any transport does
// (graph/schedule/channel_credits.h); when too much is kept, it stays with its sender until the
// receiver comes. An abort by any rank reaches all. Thread-safe; outlives its transports.
class InProcessHub {
 public:
  explicit InProcessHub(int ranks) : bytes_sent_(ranks, 0) {}
  std::unique_ptr<Transport> NewTransport(RankId rank);

 private:
  friend class InProcessTransport;
  struct Operation {
    MessageHeader header;
    const void* source = nullptr;
    void* target = nullptr;
    TransferObserver* observer = nullptr;
    int kept = -1;  // index into Stream::kept; the sender has been told that it left
  };
  // Posted operations of one side, oldest first, that the other side has not met yet.
  struct Stream {
    Fifo<Operation> sends;
    Fifo<Operation> receives;
    std::vector<std::unique_ptr<std::vector<std::byte>>> kept;  // bytes of unexpected messages
    std::vector<int> free;                                      // of `kept`, to be used again
  };
  // What is kept of the messages from one rank to another.
  struct Kept {
    uint64_t bytes = 0;
    size_t messages = 0;
  };
  using StreamKey = std::tuple<int, int, uint32_t>;  // from, to, stream

  void Post(const StreamKey& key, bool is_send, const Operation& operation);
  // Copies an unexpected message when there is room; false when there is not.
  bool Keep(const StreamKey& key, Stream& stream, Operation& send)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(const StreamKey& key, const Operation& send);
  void Abort(const absl::Status& reason);

  Mutex mutex_;
  std::map<StreamKey, Stream> streams_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<int, int>, Kept> kept_ ABSL_GUARDED_BY(mutex_);  // by from, to
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> bytes_sent_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_IN_PROCESS_TRANSPORT_H_
