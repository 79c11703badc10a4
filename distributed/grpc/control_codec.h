// The structs of distributed/worker_client.h as messages of weft.proto.
#ifndef WEFT_DISTRIBUTED_GRPC_CONTROL_CODEC_H_
#define WEFT_DISTRIBUTED_GRPC_CONTROL_CODEC_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "distributed/grpc/part_size.h"
#include "distributed/grpc/weft.pb.h"
#include "distributed/worker_client.h"
#include "platform/mapped_pages.h"
#include "tensor/tensor.h"

namespace weft {

rpc::JoinRequest Encode(const JobMembership& membership);
// InvalidArgument for a rank that the job has not, or what is less than nothing.
absl::StatusOr<JobMembership> Decode(const rpc::JoinRequest& request);

rpc::JoinReply Encode(const WorkerInfo& info);
WorkerInfo Decode(const rpc::JoinReply& reply);

rpc::MemoryRequirement Encode(const MemoryRequirement& requirement);
MemoryRequirement Decode(const rpc::MemoryRequirement& message);

rpc::RunStepsRequest Encode(const std::vector<StepRange>& ranges);
std::vector<StepRange> Decode(const rpc::RunStepsRequest& request);

// Into an empty message: one that was used and cleared keeps its memory.
void Encode(const StepReport& report, rpc::StepReport& message);
absl::StatusOr<StepReport> Decode(const rpc::StepReport& message);

// control_calls_codec.cc has these.
rpc::ControlRequest Encode(const ControlRequest& request);
// Unimplemented for a question that this version does not know.
absl::StatusOr<ControlRequest> Decode(const rpc::ControlRequest& message);
rpc::ControlReply Encode(const ControlReply& reply);
// DataLoss for an answer that cannot be.
absl::StatusOr<ControlReply> Decode(const rpc::ControlReply& message);

void EncodeType(DType dtype, const Shape& shape, rpc::TensorType& type);
// Uninitialised host memory for a tensor of the type; InvalidArgument for an impossible one.
absl::StatusOr<Tensor> AllocateTensor(const rpc::TensorType& type);
// InvalidArgument unless the type is that of the rank's part of the variable.
absl::Status CheckVariableType(const rpc::TensorType& type, const VariableShard& shard);

// Checks the parts of a variable as they come, in order.
class VariableParts {
 public:
  // The place of the part's first byte in the variable. DataLoss for one too many; InvalidArgument
  // for an impossible type.
  absl::StatusOr<size_t> Add(const rpc::VariableChunk& chunk);
  // DataLoss when bytes are missing.
  absl::Status Finish() const;
  const std::string& name() const { return name_; }
  size_t received() const { return received_; }
  // Whether the last part has come.
  bool is_complete() const { return begun_ && received_ == bytes_; }

 private:
  std::string name_;
  bool begun_ = false;
  size_t bytes_ = 0;
  size_t received_ = 0;
};

// Puts the parts together.
class VariableReader {
 public:
  absl::Status Add(const rpc::VariableChunk& chunk);
  absl::StatusOr<Tensor> Finish() const;
  bool is_complete() const { return parts_.is_complete(); }

 private:
  VariableParts parts_;
  Tensor tensor_;
};

// A part; the first of a variable also carries name and type.
rpc::VariableChunk MakeVariableChunk(std::string part);
// The part of the tensor from the `offset`-th byte on.
rpc::VariableChunk MakeVariableChunk(const std::string& name, const Tensor& tensor, size_t offset,
                                     size_t bytes);

// Calls `write` with the parts in order, at least one, and whether it is the last, until it returns
// false. It returns when the part has been answered. Of a mapped file, no more than a part stays in
// memory. REQUIRES: on the host, no strings.
template <typename Write>
bool WriteVariableChunks(const std::string& name, const Tensor& tensor, const Write& write) {
  PartWriter writer(tensor.bytes());
  do {
    const size_t offset = writer.offset();
    const size_t bytes = writer.part_bytes();
    const rpc::VariableChunk chunk = MakeVariableChunk(name, tensor, offset, bytes);
    ReleaseMappedPages({static_cast<const std::byte*>(tensor.raw_data()) + offset, bytes});
    const bool is_last = offset + bytes == tensor.bytes();
    if (!writer.Write([&] { return write(chunk, is_last); })) return false;
  } while (!writer.done());
  return true;
}

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_CONTROL_CODEC_H_
