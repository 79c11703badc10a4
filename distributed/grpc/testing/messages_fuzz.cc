// Arbitrary bytes as any message that a coordinator, a worker or a peer gets.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "distributed/grpc/control_codec.h"
#include "distributed/grpc/frame.h"
#include "distributed/grpc/partition_wire.h"
#include "distributed/grpc/seal.h"
#include "distributed/grpc/weft.pb.h"

namespace weft {
namespace {

// Reads the bytes as such a message and decodes it.
template <typename Message>
void DecodeAs(const std::string& bytes) {
  Message message;
  if (message.ParseFromString(bytes)) (void)Decode(message);
}

void TakeVariable(const std::string& bytes) {
  rpc::VariableChunk chunk;
  if (!chunk.ParseFromString(bytes)) return;
  VariableParts parts;
  if (parts.Add(chunk).ok()) (void)parts.Finish();
  (void)CheckVariableType(chunk.type(), VariableShard());
}

// The checksum that a header must have is put right, so that what is behind it is seen, too.
void TakeFrame(const std::string& bytes) {
  FrameHeaderBytes header = {};
  std::memcpy(header.data(), bytes.data(), std::min(bytes.size(), header.size()));
  const auto frame = DecodeFrameHeader(header);
  if (frame.ok()) (void)DecodeFrameHeader(EncodeFrameHeader(*frame));
}

void TakeReports(const std::string& bytes) {
  rpc::StepReports reports;
  if (!reports.ParseFromString(bytes)) return;
  for (const rpc::StepReport& report : reports.reports()) (void)Decode(report);
}

void Unsealed(const std::string& bytes) {
  rpc::Sealed sealed;
  rpc::RunStepsRequest request;
  if (sealed.ParseFromString(bytes)) (void)Unseal(sealed, request);
}

void Take(int kind, const std::string& bytes) {
  switch (kind) {
    case 0:
      return Unsealed(bytes);
    case 1:
      return DecodeAs<rpc::JoinRequest>(bytes);
    case 2:
      return DecodeAs<rpc::RunStepsRequest>(bytes);
    case 3:
      return DecodeAs<rpc::StepReport>(bytes);
    case 4:
      return DecodeAs<rpc::ControlRequest>(bytes);
    case 5:
      return DecodeAs<rpc::ControlReply>(bytes);
    case 6:
      return DecodeAs<rpc::JoinReply>(bytes);
    case 7:
      return TakeVariable(bytes);
    case 8:
      return TakeFrame(bytes);
    case 10:
      return DecodeAs<rpc::MemoryRequirement>(bytes);
    case 11:
      return TakeReports(bytes);
    default:
      (void)DecodePartition(bytes);
  }
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  weft::Take(data[0] % 12, std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
