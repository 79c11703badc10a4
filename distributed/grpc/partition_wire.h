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

// The partition again. The bytes may come from anywhere: InvalidArgument naming the field unless
// every index, type and shape makes sense by itself; whether the parts fit together, the compiler
// of the partition checks.
absl::StatusOr<Partition> DecodePartition(const std::string& bytes);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_PARTITION_WIRE_H_
