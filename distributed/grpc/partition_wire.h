// Partitions as bytes.
#ifndef WEFT_DISTRIBUTED_GRPC_PARTITION_WIRE_H_
#define WEFT_DISTRIBUTED_GRPC_PARTITION_WIRE_H_

#include <string>

#include "absl/status/statusor.h"
#include "graph/partition.h"

namespace weft {

// With the constants of its graphs, without the values of its variables. Equal partitions give
// equal bytes.
absl::StatusOr<std::string> EncodePartition(const Partition& partition);

// The partition again. The bytes may come from anywhere: InvalidArgument, naming what is wrong,
// unless they are a partition that keeps all laws of graph/schedule/partition_verifier.h.
absl::StatusOr<Partition> DecodePartition(const std::string& bytes);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_PARTITION_WIRE_H_
