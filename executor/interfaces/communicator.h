// Communicator: sends, receives and collectives between ranks. Implemented by distributed/ (over
// any transport) and, for GPUs, over NCCL.
//
// The law of the rendezvous, for every implementation (one conformance test):
//  1. Send never waits for the receiver; either side may come first.
//  2. Messages of one channel arrive in the order sent; each carries (step, micro-batch) and is
//  checked.
//  3. Abort reaches pending and future calls of every rank; the first error wins.
//  4. Memory in flight is bounded: a channel has credits, and Send waits (with deadline) for one.
//  5. Every wait has a deadline; when it expires the error names channel, tensor, step and peer.
//  Any error that ends a wait carries a WaitInfo (executor/interfaces/wait_info.h).
#ifndef WEFT_EXECUTOR_INTERFACES_COMMUNICATOR_H_
#define WEFT_EXECUTOR_INTERFACES_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/partition.h"
#include "graph/schedule/collective_schedule.h"

namespace weft {

// Which run of a channel or collective a message belongs to.
struct MessageKey {
  int64_t step = 0;
  int32_t micro_batch = -1;  // job-wide index; -1 = once per step
};

// One collective as a rank takes part in it.
struct CollectiveSpec {
  std::string name;           // for messages: "allreduce bucket 3"
  std::vector<RankId> group;  // in member order
  DType dtype = DType::kFloat32;
  CollectiveSchedule schedule;  // of this rank
  std::string tensors = {};     // for messages: "tensor 'w@grad' and 3 more"
  // Executed by the communication thread while the compute thread runs its own.
  bool beside_compute = false;
};

// Thread-safe. The Open calls happen before the first step and may allocate; Send, Receive and Run
// allocate nothing of ours. One thread at a time uses a given channel or collective.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual RankId rank() const = 0;

  using ChannelHandle = int;
  using CollectiveHandle = int;
  // Both ends open the same channel; idempotent by channel id.
  virtual absl::StatusOr<ChannelHandle> OpenChannel(const Channel& channel) = 0;
  // All members give a collective the same name. Those of one name they open in the same order, and
  // others in any: which one a message belongs to is told by group, name and that order.
  virtual absl::StatusOr<CollectiveHandle> OpenCollective(const CollectiveSpec& spec) = 0;

  // `data` must stay unchanged until WaitSent of the same handle and key, or a later one, returns.
  virtual absl::Status Send(ChannelHandle channel, MessageKey key, const void* data) = 0;
  // Waits until everything sent on the channel has left its memory.
  virtual absl::Status WaitSent(ChannelHandle channel) = 0;
  virtual absl::Status Receive(ChannelHandle channel, MessageKey key, void* data) = 0;

  // Executes the schedule. `buffers[i]` is buffer i of the schedule, host memory. Blocks.
  virtual absl::Status RunCollective(CollectiveHandle collective, MessageKey key,
                                     void* const* buffers) = 0;

  // Maximum of bytes that it may hold of what `peer` sends in collectives before they run here.
  virtual int64_t unexpected_collective_bytes(RankId peer) const {
    static_cast<void>(peer);
    return 0;
  }

  // Ends all pending and future calls, here and on the peers, with Aborted carrying `reason`.
  virtual void Abort(const absl::Status& reason) = 0;
};

// For a cluster of one: no channels, no collectives with more than one member.
std::unique_ptr<Communicator> NewSoloCommunicator();

}  // namespace weft

#endif  // WEFT_EXECUTOR_INTERFACES_COMMUNICATOR_H_
