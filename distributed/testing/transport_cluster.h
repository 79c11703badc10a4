// Several ranks' transports in one process, for the tests that hold for every transport.
#ifndef WEFT_DISTRIBUTED_TESTING_TRANSPORT_CLUSTER_H_
#define WEFT_DISTRIBUTED_TESTING_TRANSPORT_CLUSTER_H_

#include <memory>
#include <string>

#include "distributed/transport.h"

namespace weft::testing {

inline constexpr uint64_t kTestJobId = 0x1234567890abcdef;

// Owns the transports of ranks 0 to n - 1 and what is between them.
class TransportCluster {
 public:
  virtual ~TransportCluster() = default;
  virtual Transport& transport(int rank) = 0;
};

std::unique_ptr<TransportCluster> NewInProcessTransportCluster(int ranks);
// On unix sockets in a folder of its own.
std::unique_ptr<TransportCluster> NewGrpcTransportCluster(int ranks);

// By name: "InProcess" or "Grpc", for value-parameterised tests.
std::unique_ptr<TransportCluster> NewTransportCluster(const std::string& kind, int ranks);

}  // namespace weft::testing

#endif  // WEFT_DISTRIBUTED_TESTING_TRANSPORT_CLUSTER_H_
