#include "distributed/grpc/partition_wire.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/grpc/partition.pb.h"
#include "distributed/grpc/partition_codec.h"
#include "graph/schedule/partition_verifier.h"
#include "onnx_import/graph_wire.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status DecodeGraphs(const rpc::PartitionProto& proto, Partition& partition) {
  WEFT_ASSIGN_OR_RETURN(partition.begin, GraphFromOnnx(proto.begin()));
  for (const std::string& bytes : proto.micro()) {
    WEFT_ASSIGN_OR_RETURN(Graph graph, GraphFromOnnx(bytes));
    partition.micro.push_back(std::move(graph));
  }
  WEFT_ASSIGN_OR_RETURN(partition.end, GraphFromOnnx(proto.end()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> EncodePartition(const Partition& partition) {
  rpc::PartitionProto proto;
  EncodePartitionFields(partition, proto);
  WEFT_ASSIGN_OR_RETURN(*proto.mutable_begin(), EncodePartitionGraph(partition.begin));
  for (const Graph& graph : partition.micro) {
    WEFT_ASSIGN_OR_RETURN(*proto.add_micro(), EncodePartitionGraph(graph));
  }
  WEFT_ASSIGN_OR_RETURN(*proto.mutable_end(), EncodePartitionGraph(partition.end));
  if (proto.ByteSizeLong() > size_t{INT32_MAX}) {
    return absl::ResourceExhaustedError(
        absl::StrCat("partition of rank ", partition.rank.value, " has ", proto.ByteSizeLong(),
                     " bytes of graphs and constants; a worker takes at most ", INT32_MAX));
  }
  return proto.SerializeAsString();
}

absl::StatusOr<Partition> DecodePartition(const std::string& bytes) {
  rpc::PartitionProto proto;
  if (bytes.size() > size_t{INT32_MAX} || !proto.ParseFromString(bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "partition cannot be decoded: its ", bytes.size(), " bytes are no partition message"));
  }
  WEFT_ASSIGN_OR_RETURN(Partition partition, DecodePartitionFields(proto));
  WEFT_RETURN_IF_ERROR(Annotate(DecodeGraphs(proto, partition), "partition cannot be decoded"));
  WEFT_RETURN_IF_ERROR(Annotate(VerifyPartition(partition), "partition cannot be decoded"));
  return partition;
}

}  // namespace weft
