// JoinRequests: a worker asks the coordinator of a running job to take it in.
#ifndef WEFT_DISTRIBUTED_GRPC_JOINING_JOIN_REQUESTS_H_
#define WEFT_DISTRIBUTED_GRPC_JOINING_JOIN_REQUESTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/keys/key_ring.h"
#include "platform/mutex.h"

namespace weft {

// The key of the metadata in which an offer carries HandshakeVersion of the worker.
inline constexpr char kOfferVersionKey[] = "weft-version";

struct JoinRequestOptions {
  std::string coordinator;        // its address, as train --listen has it
  bool insecure_network = false;  // allow other addresses than loopback without keys
  std::string token;
  std::shared_ptr<KeyRing> keys = {};  // null: no TLS
  std::string version;                 // of the program
  // What is offered (JoinOffer).
  std::string address;
  std::string device;
  uint64_t incarnation = 0;
  absl::Duration interval = absl::Seconds(1);
  // How long it asks a coordinator that does not answer.
  absl::Duration patience = absl::Seconds(60);
};

// Asks once, within `timeout`: how many workers wait, this one among them. Unavailable where the
// coordinator does not answer, DataLoss where a message was damaged; every other error is a
// refusal, which asking again does not mend (JoinDesk says which there are).
absl::StatusOr<int> OfferWorker(const JoinRequestOptions& options, absl::Duration timeout);

// Asks until a coordinator attends the worker, and again when that has ended, in a thread of its
// own. The destructor waits for an offer under way, two seconds at most.
class JoinRequests {
 public:
  // `is_attended`: whether a coordinator attends the worker now; any thread.
  JoinRequests(JoinRequestOptions options, std::function<bool()> is_attended);
  ~JoinRequests();
  JoinRequests(const JoinRequests&) = delete;
  JoinRequests& operator=(const JoinRequests&) = delete;

  // Whether it asks no more: the worker has nothing left to do here.
  bool has_ended();
  // Why: OK where the worker was attended, and its coordinator is no more.
  absl::Status end();

 private:
  void Run();
  void EndWith(const absl::Status& end);

  const JoinRequestOptions options_;
  const std::function<bool()> is_attended_;
  Mutex mutex_;
  CondVar changed_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_JOINING_JOIN_REQUESTS_H_
