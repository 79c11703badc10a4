// DeviceCollectives: collectives, sends and receives over memory of the device, in the order of a
// stream. Implemented by distributed/nccl. What it does not take goes through the host
// (communicator.h).
#ifndef WEFT_EXECUTOR_INTERFACES_DEVICE_COLLECTIVES_H_
#define WEFT_EXECUTOR_INTERFACES_DEVICE_COLLECTIVES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "executor/interfaces/communicator.h"
#include "graph/ids.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace weft {

// One collective, or one end of a channel, as a rank takes part in it. Its buffers are those of
// graph/schedule's node_collective.h, without scratch.
struct DeviceCollectiveSpec {
  enum class Kind : uint8_t {
    kAllReduce,      // buffers[0], in place: the sum, in any order
    kAllGather,      // buffers[0]: the members' shards one after the other, the own one in place
    kReduceScatter,  // the same; the own shard ends as the sum, the others are spoilt
    kBroadcast,      // buffers[0] of the root to all
    kAllToAll,       // buffers[1]: pieces by receiver, buffers[0]: pieces by sender
    kSend,           // buffers[0] of member 0, which is this rank, to member 1
    kReceive,        // buffers[0] of member 1, which is this rank, from member 0
  };
  Kind kind = Kind::kAllReduce;
  std::string name;           // for messages
  std::string tensors;        // for messages: "tensor 'w@grad' and 3 more"
  std::vector<RankId> group;  // in member order
  int member = 0;             // this rank's place in it
  int root = 0;               // a member, of a broadcast
  int64_t channel = -1;       // of a send or a receive
  DType dtype = DType::kFloat32;
  // Elements: {all} of an all-reduce, a broadcast, a send or a receive, of each member's shard, or
  // of the pieces that go to each member.
  std::vector<int64_t> counts;
  std::vector<int64_t> received;  // of an all-to-all: elements of the pieces that come from each
  // What a run sends by the plan's schedule, which is what traffic reports count.
  int64_t sent_bytes = 0;
};

// Thread-safe but for Open and Enqueue, which one thread calls, Open before the steps.
//
// Every rank of a group enqueues the group's collectives in the same order, and all collectives of
// a rank go to one stream: so no two ranks wait for each other in a ring. What goes from one rank
// to another is enqueued in one order on both, in a stream of its own for each peer and direction.
// A send ends when the peer has received, so it may have to wait for that. Enqueue does not wait
// for peers. A collective that waits for a peer too long, a library that fails, and Abort end all
// that is under way: then the streams go on, with bytes that mean nothing, and `status` says why.
// So whoever has waited for a stream asks for `status` before it believes what it reads.
class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;

  using Handle = int;
  // True if Open will take it. All ranks of the group answer the same.
  virtual bool Takes(const DeviceCollectiveSpec& spec) const = 0;
  // REQUIRES: Takes(spec).
  virtual absl::StatusOr<Handle> Open(const DeviceCollectiveSpec& spec) = 0;
  // Puts one run into the stream; `buffers` are addresses of the device, and stay until the stream
  // has passed it. Allocates nothing once as many runs as ever were under way at once.
  virtual absl::Status Enqueue(Handle collective, MessageKey key, void* const* buffers,
                               Stream& stream) = 0;
  // OK, or the first error, with a WaitInfo where a peer was waited for.
  virtual absl::Status status() const = 0;
  // Ends what is under way, and all later calls, with Aborted carrying `reason`, here alone.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_INTERFACES_DEVICE_COLLECTIVES_H_
