// NcclCollectives: collectives, sends and receives of a rank whose device is a card that NCCL joins
// with others.
#ifndef WEFT_DISTRIBUTED_NCCL_NCCL_COLLECTIVES_H_
#define WEFT_DISTRIBUTED_NCCL_NCCL_COLLECTIVES_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/nccl/nccl.h"
#include "executor/interfaces/device_collectives.h"
#include "graph/ids.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "tensor/device.h"

namespace weft {

// Ranks whose cards are joined, in member order, with the id that the first of them made.
struct CardGroup {
  std::vector<RankId> members;
  std::string id;  // 128 bytes; empty: they are joined already
  // For what the first of two members sends to the second, and nothing else; else for collectives.
  bool sends = false;
  // Then those that it is for, by number, ascending; others of the two go through the host.
  std::vector<int64_t> channels = {};
};

// Thread blocks of a send or receive, and so its channels. Kernels that wait for a peer keep their
// blocks on the card: a few for each direction and peer leave room for collectives and kernels.
inline constexpr int kSendCtas = 8;

// What a rank has put into streams, of one collective or one channel that it sends on.
struct DeviceTraffic {
  std::string name;
  RankId to;  // of a channel
  int64_t runs = 0;
  int64_t sent_bytes = 0;  // runs x DeviceCollectiveSpec::sent_bytes: computed, not measured
};

// Borrows NCCL, device and clock. A thread of its own watches what is under way: a collective that
// has begun and does not end within the stall timeout, an error of the library, and Abort abort
// all communicators, so that the device's streams go on and nobody waits for ever. Collectives are
// enqueued into one stream, sends to a rank and receives from one each into another. Destroyed
// after the streams that it was given are drained.
class NcclCollectives final : public DeviceCollectives {
 public:
  NcclCollectives(Nccl& nccl, Device& device, Clock& clock, RankId rank,
                  absl::Duration stall_timeout);
  ~NcclCollectives() override;

  // For a group that this rank is the first of.
  absl::StatusOr<std::string> NewGroupId();
  // From now on Open takes collectives and channels of these groups, and no other. Joins those that
  // have an id; all their members do so at once, in the same order. `version` is the NCCL that made
  // the ids: FailedPrecondition where it is not this one. DeadlineExceeded after the stall timeout.
  absl::Status UseGroups(const std::vector<CardGroup>& groups, int version);

  bool Takes(const DeviceCollectiveSpec& spec) const override;
  absl::StatusOr<Handle> Open(const DeviceCollectiveSpec& spec) override;
  absl::Status Enqueue(Handle collective, MessageKey key, void* const* buffers,
                       Stream& stream) override;
  absl::Status status() const override ABSL_LOCKS_EXCLUDED(mutex_);
  void Abort(const absl::Status& reason) override;

  // All that have been joined, also those that are not used now; ids are not kept.
  std::vector<CardGroup> joined() const;

  // In the order of Open; in the thread that enqueues. Receives are there with nothing sent.
  std::vector<DeviceTraffic> traffic() const;
  size_t opened() const { return opened_.size(); }

 private:
  struct Group {
    std::vector<RankId> members;
    std::string text;  // "worker:0, worker:1"
    NcclCommunicator communicator = nullptr;
    bool is_used = false;
    std::vector<int64_t> channels;  // CardGroup::channels
    size_t queue = 0;               // of under_way_
  };
  struct Opened {
    DeviceCollectiveSpec spec;
    Group* group = nullptr;
    std::string what;  // for messages
    int64_t runs = 0;
  };
  // One run that was enqueued.
  struct Run {
    NcclCollectives* owner = nullptr;
    Opened* opened = nullptr;
    MessageKey key;
    std::vector<void*> buffers;
    std::unique_ptr<Event> begun;  // the stream has come to it
    std::unique_ptr<Event> ended;
    absl::Time since = absl::InfiniteFuture();  // it was first seen to have begun
  };

  absl::StatusOr<Run*> NewRun() ABSL_LOCKS_EXCLUDED(mutex_);
  // In the stream's place: has the library launch it.
  static absl::Status Launch(void* run, Stream& stream);
  NcclCode Issue(const Run& run, void* stream);
  NcclCode IssueGathered(const Run& run, NcclType type, void* stream);
  NcclCode IssueScattered(const Run& run, NcclType type, void* stream);
  NcclCode IssueAllToAll(const Run& run, void* stream);
  NcclCode IssueTransfer(const Run& run, void* stream);
  // Calls of a communicator, unless all are aborted; waits until it is done.
  absl::Status Call(NcclCommunicator& communicator, const std::string& what,
                    absl::FunctionRef<NcclCode()> call);
  // Runs it with the card as the current device.
  absl::Status OnCard(absl::FunctionRef<absl::Status()> action);
  absl::Status Join(Group& group, const CardGroup& joined);
  // Sends a byte, or receives one: NCCL makes its connections with the first of them, which waits
  // for the peer.
  absl::Status Connect(Group& group, const CardGroup& joined, const std::string& what);
  absl::Status LibraryError(NcclCode code, NcclCommunicator communicator,
                            const std::string& what) const;

  void Watch();
  // Of the runs that streams are at, the one that is there longest; null: none. Forgets those that
  // have ended.
  Run* FindBegun() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is wrong with it.
  absl::Status Check() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AskLibrary() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status WaitedFor(const absl::Status& status, const Run& run) const;
  // Keeps the first error and ends everything.
  absl::Status Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void AbortCommunicators() ABSL_LOCKS_EXCLUDED(abort_mutex_);
  void Close();

  Nccl& nccl_;
  Device& device_;
  Clock& clock_;
  const RankId rank_;
  const absl::Duration stall_timeout_;
  std::unique_ptr<Stream> stream_;  // of OnCard
  std::shared_ptr<Buffer> byte_;    // of Connect
  std::map<std::vector<int>, Group>
      groups_;  // by members, and -1 behind them where it is for sends
  std::vector<std::unique_ptr<Opened>> opened_;

  // Who may use a communicator, without a lock around calls that take long:
  //  * Call, on the one thread at a time that joins or launches with a communicator: counts itself
  //    among calls_, then looks at is_aborted_, and makes no call where that is set.
  //  * AbortCommunicators, on any thread: sets is_aborted_, then looks at calls_, and waits
  //    until no call is under way, or for kCallPatience. A call that still hangs then is what
  //    ncclCommAbort is for, which may come from another thread: Call looks at is_aborted_ again
  //    when it comes back, and touches the communicator no more.
  // Both are sequentially consistent, so one of the two sees the other. AbortCommunicators and
  // AskLibrary hold abort_mutex_, and look at communicators_ alone: what is aborted is not in it,
  // and one that was made during an abort is aborted by the Fail of its Join. mutex_ and
  // abort_mutex_ are never held together.
  std::atomic<int> calls_{0};
  std::atomic<bool> is_aborted_{false};
  Mutex abort_mutex_;  // between Abort and AsyncError of other threads
  std::vector<NcclCommunicator> communicators_ ABSL_GUARDED_BY(abort_mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // By stream, in its order: the first of collectives, the others of sends or receives.
  std::vector<std::deque<Run*>> under_way_ ABSL_GUARDED_BY(mutex_) = {{}};
  std::vector<Run*> free_runs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Run>> runs_ ABSL_GUARDED_BY(mutex_);
  std::thread watcher_;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_NCCL_NCCL_COLLECTIVES_H_
