// Transport between threads of one process: a local cluster without sockets, and the reference
// implementation for tests.
#ifndef WEFT_DISTRIBUTED_IN_PROCESS_TRANSPORT_H_
#define WEFT_DISTRIBUTED_IN_PROCESS_TRANSPORT_H_

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "distributed/fifo.h"
#include "distributed/transport.h"
#include "platform/mutex.h"

namespace weft {

// Where the ranks of one process meet. A message is copied once, from the sender's memory to the
// receiver's, by whichever side comes second. An abort by any rank reaches all. Thread-safe;
// outlives its transports.
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
  };
  // Posted operations of one side, oldest first, that the other side has not met yet.
  struct Stream {
    Fifo<Operation> sends;
    Fifo<Operation> receives;
  };
  using StreamKey = std::tuple<int, int, uint32_t>;  // from, to, stream

  void Post(const StreamKey& key, bool is_send, const Operation& operation);
  void Abort(const absl::Status& reason);

  Mutex mutex_;
  std::map<StreamKey, Stream> streams_ ABSL_GUARDED_BY(mutex_);
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> bytes_sent_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_IN_PROCESS_TRANSPORT_H_
