// FakeNccl: NCCL among ranks of one process, for tests of what calls it.
#ifndef WEFT_DISTRIBUTED_NCCL_TESTING_FAKE_NCCL_H_
#define WEFT_DISTRIBUTED_NCCL_TESTING_FAKE_NCCL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "distributed/nccl/nccl.h"
#include "platform/mutex.h"

namespace weft::testing {

// A call of a collective, as it came.
struct NcclCall {
  std::string what;  // "AllReduce 12 float32"
  int rank = 0;      // in the communicator
};

// What the ranks share. It computes from the definitions, sums in double in the order of the ranks,
// and checks each call: buffers lie in an allocation of the rank's device, the members of a
// communicator make the same calls in the same order, one call of a communicator is under way at a
// time (so its calls are on one stream), none comes after its end or before all have joined, and
// sends and receives are in a group, without which a communicator that does not block may lose
// their order (NVIDIA/nccl issue 1495). A group's sends end when they are received, as large ones
// of NCCL do. What is broken is a violation, and the call's error. Of a rank without `enqueue`, a
// call runs when it is made, and waits for its peers: so the device has to run host work on its
// streams' threads (DeviceInfo::runs_host_work). With it, a call goes into its stream and says that
// it is in progress, as NCCL does for launching devices. Thread-safe; outlives its ranks and their
// streams.
class FakeNcclWorld {
 public:
  // Whether bytes lie in an allocation of the rank's device.
  using IsAllocated = std::function<bool(const void* data, size_t bytes)>;

  // What a call does when the stream has come to it: reads `given` bytes, waits for its peers, and
  // gives the `taken` bytes of the result, which mean nothing after an error.
  struct Exchange {
    const void* from = nullptr;
    size_t given = 0;
    void* to = nullptr;
    size_t taken = 0;
    std::function<NcclCode(const std::vector<char>& given, std::vector<char>& taken)> run;
  };
  // Puts it into the stream (a native_handle). False: the stream refuses it.
  using Enqueue = std::function<bool(void* stream, Exchange exchange)>;

  explicit FakeNcclWorld(int version = 22809) : version_(version) {}

  // NCCL as one process sees it; lives as long as the world. `version` 0: the world's.
  Nccl& AddRank(IsAllocated is_allocated, int version = 0, Enqueue enqueue = nullptr);

  std::vector<NcclCall> calls() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Broken rules so far.
  std::vector<std::string> violations() const ABSL_LOCKS_EXCLUDED(mutex_);
  int aborts() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Communicators that were made and neither destroyed nor aborted.
  int Leaks() const ABSL_LOCKS_EXCLUDED(mutex_);
  // AsyncError answers so for all communicators from now on.
  void SetAsyncError(NcclCode code) ABSL_LOCKS_EXCLUDED(mutex_);
  // Each call is in progress from now on until the rank has been asked so many times.
  void HoldCalls(int questions) ABSL_LOCKS_EXCLUDED(mutex_);
  // Joining as this rank of a communicator fails from now on.
  void RefuseToJoin(int rank) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class FakeNcclRank;

  struct Posted {
    std::string what;                      // equal for all members
    std::vector<std::vector<char>> bytes;  // by member
    int arrived = 0;
  };
  // What a rank has sent to another, which takes it in that order.
  struct Letters {
    std::deque<std::vector<char>> waiting;
    int64_t sent = 0;
    int64_t taken = 0;
  };
  struct Group {
    int ranks = 0;
    std::set<int> joined;
    std::map<int64_t, Posted> calls;                 // by number
    std::map<std::pair<int, int>, Letters> letters;  // by sender, receiver
  };
  struct Member {
    Group* group = nullptr;
    int rank = 0;
    int64_t calls = 0;
    bool is_busy = false;  // a call waits for its peers
    bool is_gone = false;
  };

  NcclCode Violate(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int version_;
  mutable Mutex mutex_;
  CondVar changed_;
  int64_t ids_ ABSL_GUARDED_BY(mutex_) = 0;
  NcclCode async_error_ ABSL_GUARDED_BY(mutex_) = NcclCode::kSuccess;
  int refused_rank_ ABSL_GUARDED_BY(mutex_) = -1;
  int held_for_ ABSL_GUARDED_BY(mutex_) = 0;  // questions
  int aborts_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<NcclCall> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> violations_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Group> groups_ ABSL_GUARDED_BY(mutex_);  // by id
  std::map<NcclCommunicator, std::unique_ptr<Member>> members_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Nccl>> ranks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::testing

#endif  // WEFT_DISTRIBUTED_NCCL_TESTING_FAKE_NCCL_H_
