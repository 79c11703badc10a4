// A partition's fields as the message of partition.proto, but for its graphs: what the bytes and
// the text of a partition have in common. Internal to this room.
#ifndef WEFT_DISTRIBUTED_GRPC_PARTITION_CODEC_H_
#define WEFT_DISTRIBUTED_GRPC_PARTITION_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "distributed/grpc/partition.pb.h"
#include "graph/partition.h"

namespace weft {

// All but begin, micro and end.
void EncodePartitionFields(const Partition& partition, rpc::PartitionProto& proto);

// A partition without graphs; the message's `micro` is counted. The message may come from anywhere:
// InvalidArgument naming the field unless every index, type and shape makes sense by itself.
absl::StatusOr<Partition> DecodePartitionFields(const rpc::PartitionProto& proto);

// An ONNX file of the graph, without the values of its variables.
absl::StatusOr<std::string> EncodePartitionGraph(const Graph& graph);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_PARTITION_CODEC_H_
