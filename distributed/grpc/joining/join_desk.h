// JoinDesk: where the coordinator of a running job hears of workers that want to be taken in.
#ifndef WEFT_DISTRIBUTED_GRPC_JOINING_JOIN_DESK_H_
#define WEFT_DISTRIBUTED_GRPC_JOINING_JOIN_DESK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/keys/key_ring.h"

namespace weft {

// A worker that has asked. What it says of itself is not checked but for its length.
struct JoinOffer {
  uint64_t incarnation = 0;  // of its process
  std::string address;       // where it listens
  std::string device;        // "cuda:1"
};

struct JoinDeskOptions {
  std::string address;            // "unix:/path" or "host:port"; port 0 = any free one
  bool insecure_network = false;  // allow other addresses than loopback without keys
  std::string token;              // of every caller; not empty
  // Mutual TLS, on all but unix sockets; null: none. The certificate is that of a coordinator.
  std::shared_ptr<KeyRing> keys = {};
  std::string version;  // of the program
  // Workers that wait at once: from their first offer until they are taken in, refused or gone.
  int max_waiting = 8;
  // How long an offer counts that is not renewed.
  absl::Duration patience = absl::Seconds(10);
  // Why a worker at this address cannot be used; OK: it may be. Any thread. Null: all may be.
  std::function<absl::Status(const std::string& address)> check_address = nullptr;
};

// Listens, checks callers, and keeps their offers until the job asks for them. Connects to nobody.
// Thread-safe. The destructor ends all calls.
//
// A caller is refused with Unauthenticated (no token, no certificate), PermissionDenied (another
// role than a worker's, the certificate of another host than it offers, or another version),
// FailedPrecondition (an address that does not fit), ResourceExhausted (too many wait), or with
// what Refuse said.
class JoinDesk {
 public:
  // InvalidArgument, FailedPrecondition or Unavailable where the address may or can not be listened
  // on; Unauthenticated where the keys' certificate cannot serve, saying how to renew it.
  static absl::StatusOr<std::unique_ptr<JoinDesk>> Open(const JoinDeskOptions& options);
  virtual ~JoinDesk() = default;

  // With the port that was found for 0.
  virtual const std::string& address() const = 0;
  // Offers that have come since the last call. They wait from then on until Refuse or Forget.
  virtual std::vector<JoinOffer> TakeNew() = 0;
  // The worker is told so when it asks again, and ends.
  virtual void Refuse(uint64_t incarnation, const absl::Status& why) = 0;
  // The worker is in the job, or is lost: it waits no more, and may ask again.
  virtual void Forget(uint64_t incarnation) = 0;
  // Workers that wait.
  virtual int waiting() = 0;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_JOINING_JOIN_DESK_H_
