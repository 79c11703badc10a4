// Transport between the workers of one machine, through memory that they share.
#ifndef WEFT_DISTRIBUTED_SHARED_MEMORY_SHARED_MEMORY_TRANSPORT_H_
#define WEFT_DISTRIBUTED_SHARED_MEMORY_SHARED_MEMORY_TRANSPORT_H_

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/shared_memory/handover.h"
#include "distributed/shared_memory/ring_peer.h"
#include "distributed/transport.h"
#include "platform/file_descriptor.h"
#include "platform/mutex.h"

namespace weft {

// The job, as one rank of it sees it.
struct SharedMemoryJob {
  std::string folder;  // where the ranks of this machine meet: RingFolder()
  uint64_t job_id = 0;
  RankId rank;
  std::vector<std::string> addresses;  // by rank, for messages
  // By rank: whether it may run on this machine. That it does shows when it is connected to.
  std::vector<bool> may_be_here;
  std::string token;  // that peers want
};

// Messages to and from a rank of this machine go through a ring for each direction: the sender
// copies a part into it, the receiver copies it out, into the posted slot. All others go through
// another transport, here called sockets. Which way a pair of ranks takes is settled by their first
// message, for both directions alike: who has its listener in this user's folder is on this
// machine. A lost peer fails the operations with that peer (Unavailable); an abort on either way,
// here or there, fails all (Aborted).
//
// Rings are worked on by the thread that posts, as far as a message is short; by threads that wait
// (Assist); and by one of this transport, which sleeps while there is nothing to do, hears of peers
// that are lost, and answers them. A peer that runs and does not answer for four seconds is lost.
class SharedMemoryTransport final : public Transport {
 public:
  // Tells this transport of an abort that the other one has heard of. Any thread.
  using OnAbort = std::function<void(const std::string& reason)>;
  // Makes the other transport.
  using OpenSockets = absl::FunctionRef<absl::StatusOr<std::unique_ptr<Transport>>(OnAbort)>;
  // Errors of the folder, and of `open_sockets`.
  static absl::StatusOr<std::unique_ptr<Transport>> Open(const SharedMemoryJob& job,
                                                         OpenSockets open_sockets);
  // Ends what is still under way with Aborted, and says goodbye to the peers.
  ~SharedMemoryTransport() override;

  RankId rank() const override { return job_.rank; }
  void Send(RankId peer, const MessageHeader& header, const void* data,
            TransferObserver& observer) override;
  void Receive(RankId peer, const MessageHeader& header, void* data,
               TransferObserver& observer) override;
  void Assist(RankId peer, const std::atomic<bool>& is_under_way, bool alone) override;
  void Abort(const absl::Status& reason) override;
  int64_t bytes_sent() const override;
  int64_t header_bytes_sent() const override;
  int64_t unexpected_bytes_limit() const override;
  int64_t ring_bytes() const override;

 private:
  // A connection whose greeting has not come yet.
  struct Stranger {
    FileDescriptor connection;
    int ticks = 0;
  };

  SharedMemoryTransport(const SharedMemoryJob& job, std::unique_ptr<RingListener> listener,
                        FileDescriptor wake);

  // Null, after `observer` was told, for a rank that is none.
  RingPeer* FindPeer(RankId peer, TransferObserver& observer);
  // Whether its messages go through rings; settles it.
  bool UsesRing(RingPeer& peer);
  absl::Status OpenRing(RingPeer& peer);
  void AbortAll(const std::string& reason);
  // The reason, where the job was aborted.
  bool IsAborted(std::string& reason);
  void Wake();

  // The thread's.
  void Run();
  bool WorkOnRings();
  bool HasWork();
  void Poll(int milliseconds);
  void Tick();
  void AcceptConnections();
  // Whether it is a stranger no longer.
  bool Admit(Stranger& stranger);
  absl::Status Attach(ReceivedGreeting& greeting, FileDescriptor& connection);
  void TakeNotices(RingPeer& peer, RingPeer::Direction direction);

  const SharedMemoryJob job_;
  const std::unique_ptr<RingListener> listener_;
  const FileDescriptor wake_;                     // an event that ends a sleep of the thread
  std::vector<std::unique_ptr<RingPeer>> peers_;  // by rank; null for this one
  std::unique_ptr<Transport> owned_sockets_;
  std::atomic<Transport*> sockets_{nullptr};
  const int cores_;     // that this process may use
  int ranks_here_ = 1;  // that may be on this machine, with this one
  std::atomic<int64_t> bytes_sent_{0};
  std::atomic<bool> has_work_{false};
  std::atomic<bool> is_asleep_{false};
  std::atomic<bool> stopping_{false};
  // The thread's.
  std::vector<Stranger> strangers_;
  std::vector<pollfd> polled_;
  std::vector<std::pair<RingPeer*, RingPeer::Direction>> polled_connections_;

  Mutex mutex_;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_SHARED_MEMORY_SHARED_MEMORY_TRANSPORT_H_
