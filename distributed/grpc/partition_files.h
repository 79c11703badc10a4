// A partition as a folder of files that people can read, edit and hand in again:
//
//   partition.textproto   everything but the graphs: partition.proto as text, one entry a line
//   begin.onnx, micro-0.onnx, micro-1.onnx, ..., end.onnx   the graphs, which the text names
#ifndef WEFT_DISTRIBUTED_GRPC_PARTITION_FILES_H_
#define WEFT_DISTRIBUTED_GRPC_PARTITION_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/partition.h"
#include "platform/file_system.h"

namespace weft {

inline constexpr char kPartitionTextName[] = "partition.textproto";

// Creates the folder and writes the files; graphs without anything in them get none. Without the
// values of variables, as EncodePartition. How many files there are.
absl::StatusOr<int> WritePartitionFiles(FileSystem& files, const std::string& folder,
                                        const Partition& partition);

// The partition again, as DecodePartition gives it: the ids of its graphs' values ascend with their
// nodes (onnx_import/graph_wire.h), all else is the same. Files may come from anywhere, edited or
// cut off: NotFound for one that is missing, InvalidArgument naming file and place or
// field; what is refused of bytes (partition_wire.h) is refused of files.
absl::StatusOr<Partition> ReadPartitionFiles(FileSystem& files, const std::string& folder);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_PARTITION_FILES_H_
