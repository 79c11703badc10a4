// Several ranks' transports in one process, for the tests that hold for every transport.
#ifndef WEFT_DISTRIBUTED_TESTING_TRANSPORT_CLUSTER_H_
#define WEFT_DISTRIBUTED_TESTING_TRANSPORT_CLUSTER_H_

#include <memory>
#include <string>
#include <vector>

#include "distributed/keys/key_ring.h"
#include "distributed/transport.h"

namespace weft::testing {

inline constexpr uint64_t kTestJobId = 0x1234567890abcdef;

// Owns the transports of ranks 0 to n - 1 and what is between them.
class TransportCluster {
 public:
  virtual ~TransportCluster() = default;
  virtual Transport& transport(int rank) = 0;
};

// The names of all transports, letters only: the tests that hold for every transport run on each.
// "InProcess"; "Grpc", on unix sockets in a folder of its own; "SharedMemory"; "TwoMachines", where
// pairs of ranks share memory and others do not.
std::vector<std::string> TransportKinds();

// A cluster of one of these kinds; null for another name.
std::unique_ptr<TransportCluster> NewTransportCluster(const std::string& kind, int ranks);

// gRPC on ports of 127.0.0.1: TLS with these keys, of a worker on that host; null: no TLS.
std::unique_ptr<TransportCluster> NewPortCluster(int ranks, std::shared_ptr<KeyRing> keys);

}  // namespace weft::testing

#endif  // WEFT_DISTRIBUTED_TESTING_TRANSPORT_CLUSTER_H_
