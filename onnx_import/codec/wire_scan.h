// A look at the bytes of a protobuf message before protobuf sees them.
#ifndef WEFT_ONNX_IMPORT_CODEC_WIRE_SCAN_H_
#define WEFT_ONNX_IMPORT_CODEC_WIRE_SCAN_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "absl/status/status.h"
#include "onnx_import/codec/byte_rope.h"

namespace google::protobuf {
class Message;
}

namespace weft {

// How much a file from outside may ask for.
struct WireLimits {
  // Protobuf's own limit: lengths are 32-bit, signed.
  size_t max_bytes = (size_t{1} << 31) - 1;
  // Messages inside messages. A subgraph takes three levels, so this is above the 30 nested
  // subgraphs that the validator accepts.
  int max_depth = 110;
  // The decoded form may take `max_growth` times the file's size, and `min_memory` whatever the
  // size: stops files of millions of empty messages.
  size_t max_growth = 32;
  size_t min_memory = size_t{192} << 20;
  // Nodes of all graphs and functions. Each takes some 2.5 KiB until it is part of a Graph.
  size_t max_nodes = std::numeric_limits<size_t>::max();
};

// Walks the encoded message once, without recursion, and checks that the encoding is whole, that
// every field has the wire type its schema says, that no singular message occurs twice, and the
// limits. InvalidArgument with the byte offset and the field's name; ResourceExhausted for the
// limits. Linear time, memory in proportion to the depth. `prototype` is the default instance of
// the message type.
absl::Status ScanWire(std::string_view bytes, const google::protobuf::Message& prototype,
                      const WireLimits& limits);

// Parses a rope of bytes that were checked, or are parts of such.
absl::Status ParseRope(const ByteRope& bytes, const WireLimits& limits,
                       google::protobuf::Message& message);

// Checks the bytes, then parses them into `message`. After success the message holds every field of
// the bytes, unknown ones included.
absl::Status ParseWire(std::string_view bytes, const WireLimits& limits,
                       google::protobuf::Message& message);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_WIRE_SCAN_H_
