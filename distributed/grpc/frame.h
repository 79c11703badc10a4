// Frame: one gRPC message of a data stream: a fixed header and a part of a payload.
#ifndef WEFT_DISTRIBUTED_GRPC_FRAME_H_
#define WEFT_DISTRIBUTED_GRPC_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "distributed/grpc/part_size.h"
#include "distributed/transport.h"

namespace weft {

// Payloads travel in parts of at most this many bytes.
inline constexpr size_t kFramePartBytes = PartSize::kLargest;
inline constexpr size_t kFrameHeaderBytes = 96;

// The header of one gRPC message of a data stream. The payload part follows it on the wire.
struct Frame {
  enum class Kind : uint8_t {
    kData = 1,   // part [offset, offset + part_bytes) of the message `header` speaks of
    kAbort = 2,  // the sender's job was aborted; the part is the reason
    kClose = 3,  // the sender is done; nothing follows
  };
  Kind kind = Kind::kData;
  MessageHeader header;  // `checksum` is that of this part
  uint64_t offset = 0;
  uint64_t part_bytes = 0;
  bool asks = false;  // for an answer, as soon as it has come
};

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

// Little-endian, with a checksum over the header itself at the end.
FrameHeaderBytes EncodeFrameHeader(const Frame& frame);
// DataLoss unless the bytes are a header as encoded above.
absl::StatusOr<Frame> DecodeFrameHeader(const FrameHeaderBytes& bytes);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_FRAME_H_
