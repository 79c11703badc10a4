// SnapshotCopies: a rank's state, copied every few steps into its own memory and that of another
// rank, its keeper.
#ifndef WEFT_DISTRIBUTED_SNAPSHOT_COPIES_H_
#define WEFT_DISTRIBUTED_SNAPSHOT_COPIES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/recovery/held_snapshots.h"
#include "distributed/transport.h"
#include "distributed/transport_communicator.h"
#include "distributed/worker_client.h"
#include "executor/interfaces/communicator.h"
#include "executor/variables/snapshot_image.h"
#include "executor/variables/variable_store.h"
#include "graph/partition.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "tensor/tensor.h"

namespace weft {

// Of the messages with copies, and of a keeper's words about them. No channel and no collective of
// a program has these streams.
inline constexpr uint32_t kSnapshotStream = 0x7fffff00;
inline constexpr uint32_t kTakenStream = 0x7fffff01;

// What the snapshots of a job are made with. Pointers are borrowed.
struct SnapshotCopiesOptions {
  std::shared_ptr<Transport> transport;
  Communicator* communicator = nullptr;  // over that transport
  Clock* clock = nullptr;
  VariableStore* variables = nullptr;
  HeldSnapshots* held = nullptr;  // where the snapshots are then
  JobIdentity identity;
  RankId rank;
  Replication replication;
  absl::Duration stall_timeout;  // longest wait for a peer
};

// The law: at any moment all ranks' snapshots of one step are whole, each in two memories, from the
// first that was on. Each rank has room for two steps, of itself and of each rank that it keeps. A
// snapshot goes into the older room only where all ranks have said, in a sum over all of them, that
// those of the newer step are whole; else it waits for a later step (they still travel) or goes
// where the newest was (a copy was damaged). So steps never wait for a copy that travels: they wait
// for the copy in the own memory, and for the sum, two numbers a rank.
//
// The bytes travel in messages of 256 KiB on streams of their own, one at a time, so that messages
// of steps wait for one of them at most. A keeper says when it has taken eight of them, and no more
// are ahead of it: what comes unasked never fills its inbox, in which steps have messages, too. One
// thread calls this, the one that runs steps; another one, inside, sends and receives.
class SnapshotCopies {
 public:
  // Opens its sum on the communicator. Internal where the replication has no such rank.
  static absl::StatusOr<std::unique_ptr<SnapshotCopies>> Open(SnapshotCopiesOptions options);
  // Waits for what travels: it ends, or its transport is aborted, or the stall timeout expires.
  ~SnapshotCopies();
  SnapshotCopies(const SnapshotCopies&) = delete;
  SnapshotCopies& operator=(const SnapshotCopies&) = delete;

  // The variables that this program changes are part of the state.
  void Add(const Partition& partition);
  // Of the memory that it takes.
  int64_t bytes() const;
  // That `peer` may send before it is asked for.
  int64_t unexpected_bytes(RankId peer) const;
  // Takes that memory.
  absl::Status Prepare();

  // A step begins, or has ended: the state is that after `step` steps of the job. Makes a snapshot
  // where one is due. REQUIRES: no step is running; all ranks call it at the same steps. The errors
  // are those of lost peers, of devices, and of memory; the job ends with them.
  absl::Status BeforeStep(int64_t step) { return has_begun_ ? absl::OkStatus() : Make(step); }
  absl::Status AfterStep(int64_t step) {
    return step % options_.replication.every == 0 ? Make(step) : absl::OkStatus();
  }

  // Waits until nothing travels.
  void Settle();

 private:
  // Who waits for one posted transfer.
  class Wait;
  // Of one rank: this one, or one that it keeps.
  struct Room {
    int rank = 0;
    int64_t bytes = 0;
    std::array<Tensor, 2> images;
    std::array<SnapshotKey, 2> keys;  // of what is in them
    uint64_t sequence = 0;            // of the next message of it, to its keeper
    uint64_t taken = 0;               // of the next word of its keeper, to it
  };

  explicit SnapshotCopies(SnapshotCopiesOptions options);
  absl::Status Make(int64_t step);
  // How many ranks have nothing that travels, and how many have all of the newest step.
  struct Agreement {
    int settled = 0;
    int whole = 0;
  };
  absl::StatusOr<Agreement> Agree(int64_t step, bool is_settled, bool is_whole);
  absl::Status CheckSizes() const;
  void Forget(size_t place);

  // Of the thread inside. Whether all is whole.
  void Loop();
  absl::StatusOr<bool> Travel(size_t place);
  absl::StatusOr<bool> TravelPieces(size_t place);
  absl::Status Await(Wait& wait, const char* what, int rank);
  // Of the next message of a state, and of the next word of its keeper.
  MessageHeader PieceHeader(Room& room, int64_t step, int64_t bytes) const;
  MessageHeader TakenHeader(Room& room, int64_t step) const;
  absl::Status Send(const MessageHeader& header, int peer, const void* data, Wait& wait);
  absl::Status Receive(const MessageHeader& header, int peer, void* data);
  // After so many pieces: the keeper of this rank's state has taken them.
  absl::Status AwaitTaken(int64_t pieces, int64_t step);
  // Tells the rank whose state it keeps.
  absl::Status TellTaken(Room& room, int64_t pieces, int64_t step);
  int keeper() const { return options_.replication.keepers[static_cast<size_t>(own_.rank)]; }

  const SnapshotCopiesOptions options_;
  const int ranks_;
  std::vector<VariableShard> shards_;  // of the state, each once
  SnapshotLayout layout_;
  Room own_;
  std::vector<Room> kept_;
  Communicator::CollectiveHandle sum_ = -1;
  std::vector<std::vector<float>> values_;
  std::vector<void*> buffers_;
  CollectiveSpec spec_;
  bool has_begun_ = false;
  size_t newest_ = 0;  // the place of the newest snapshot in each room
  int64_t made_ = 0;
  int64_t skipped_ = 0;  // that were due while the one before still travelled

  // Of the thread inside, with memory that posted transfers use.
  std::unique_ptr<Wait> sending_;
  std::unique_ptr<Wait> telling_;
  std::unique_ptr<Wait> receiving_;
  uint64_t own_stamp_ = 0;
  uint64_t kept_stamp_ = 0;
  const uint64_t taken_word_ = 0;
  uint64_t heard_word_ = 0;
  Mutex mutex_;
  CondVar changed_;
  bool travels_ ABSL_GUARDED_BY(mutex_) = false;  // the newest
  bool is_whole_ ABSL_GUARDED_BY(mutex_) = true;  // what has travelled last, as far as this rank is
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  size_t place_ ABSL_GUARDED_BY(mutex_) = 0;  // of what travels
  std::thread thread_;                        // from the first snapshot on
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_SNAPSHOT_COPIES_H_
