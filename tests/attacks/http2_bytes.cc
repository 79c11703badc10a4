#include "tests/attacks/http2_bytes.h"

namespace weft::testing {

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(static_cast<uint8_t>(value >> shift)));
  }
  return bytes;
}

std::string FrameHeader(FrameKind kind, uint8_t flags, uint32_t stream, uint32_t length) {
  std::string header = BigEndian(length).substr(1);
  header.push_back(static_cast<char>(kind));
  header.push_back(static_cast<char>(flags));
  return header + BigEndian(stream);
}

std::string Frame(FrameKind kind, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string frame = FrameHeader(kind, flags, stream, static_cast<uint32_t>(payload.size()));
  return frame.append(payload);
}

std::string ClientPreface() {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(FrameKind::kSettings, 0, 0, "");
}

std::string HeaderField(std::string_view name, std::string_view value) {
  std::string field(1, '\0');  // literal, not indexed, with a name of its own
  field.push_back(static_cast<char>(name.size()));
  field.append(name);
  field.push_back(static_cast<char>(value.size()));
  return field.append(value);
}

std::string CallHeaders(std::string_view path) {
  return HeaderField(":method", "POST") + HeaderField(":scheme", "http") +
         HeaderField(":path", path) + HeaderField(":authority", "worker") +
         HeaderField("te", "trailers") + HeaderField("content-type", "application/grpc");
}

}  // namespace weft::testing
