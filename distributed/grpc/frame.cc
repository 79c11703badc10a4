#include "distributed/grpc/frame.h"

#include <bit>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "platform/checksum.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are written as they lie");

constexpr uint32_t kMagic = 0x54464557;  // "WEFT"
constexpr uint8_t kFormat = 2;

// The bytes on the wire, in order, without padding.
struct Layout {
  uint32_t magic;
  uint8_t format;
  uint8_t kind;
  uint8_t dtype;
  uint8_t asks;
  uint64_t job_id;
  uint64_t incarnation;
  uint64_t sequence;
  int64_t step;
  int32_t micro_batch;
  uint32_t stream;
  uint64_t elements;
  uint64_t bytes;
  uint64_t offset;
  uint64_t part_bytes;
  uint64_t part_checksum;
  uint64_t header_checksum;
};
static_assert(sizeof(Layout) == kFrameHeaderBytes);

uint64_t HeaderChecksum(const FrameHeaderBytes& bytes) {
  return Checksum(std::span(bytes).first(offsetof(Layout, header_checksum)));
}

}  // namespace

FrameHeaderBytes EncodeFrameHeader(const Frame& frame) {
  const MessageHeader& header = frame.header;
  Layout layout = {kMagic,
                   kFormat,
                   static_cast<uint8_t>(frame.kind),
                   static_cast<uint8_t>(header.dtype),
                   static_cast<uint8_t>(frame.asks ? 1 : 0),
                   header.job_id,
                   header.incarnation,
                   header.sequence,
                   header.step,
                   header.micro_batch,
                   header.stream,
                   header.elements,
                   header.bytes,
                   frame.offset,
                   frame.part_bytes,
                   header.checksum,
                   0};
  FrameHeaderBytes bytes;
  std::memcpy(bytes.data(), &layout, sizeof(layout));
  layout.header_checksum = HeaderChecksum(bytes);
  std::memcpy(bytes.data(), &layout, sizeof(layout));
  return bytes;
}

absl::StatusOr<Frame> DecodeFrameHeader(const FrameHeaderBytes& bytes) {
  Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  if (layout.magic != kMagic || layout.format != kFormat) {
    return absl::DataLossError(absl::StrCat("message does not begin like one of Weft's (format ",
                                            int{layout.format}, ", expected ", int{kFormat}, ")"));
  }
  if (layout.header_checksum != HeaderChecksum(bytes)) {
    return absl::DataLossError("message header was damaged on its way: its checksum differs");
  }
  if (layout.kind < 1 || layout.kind > 3 || layout.asks > 1 ||
      layout.part_bytes > kFramePartBytes) {
    return absl::DataLossError(absl::StrCat("message header makes no sense: kind ",
                                            int{layout.kind}, ", part of ", layout.part_bytes,
                                            " bytes"));
  }
  Frame frame;
  frame.kind = static_cast<Frame::Kind>(layout.kind);
  frame.header.job_id = layout.job_id;
  frame.header.incarnation = layout.incarnation;
  frame.header.stream = layout.stream;
  frame.header.sequence = layout.sequence;
  frame.header.step = layout.step;
  frame.header.micro_batch = layout.micro_batch;
  frame.header.dtype = static_cast<DType>(layout.dtype);
  frame.header.elements = layout.elements;
  frame.header.bytes = layout.bytes;
  frame.header.checksum = layout.part_checksum;
  frame.offset = layout.offset;
  frame.part_bytes = layout.part_bytes;
  frame.asks = layout.asks == 1;
  return frame;
}

}  // namespace weft
