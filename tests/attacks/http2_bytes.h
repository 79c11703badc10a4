// Bytes of HTTP/2 (RFC 9113) as no library writes them.
#ifndef WEFT_TESTS_ATTACKS_HTTP2_BYTES_H_
#define WEFT_TESTS_ATTACKS_HTTP2_BYTES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::testing {

// Kinds of frames, and flags, by their numbers in the standard.
enum class FrameKind : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kWindowUpdate = 8,
  kContinuation = 9,
};
inline constexpr uint8_t kEndOfStream = 1;
inline constexpr uint8_t kEndOfHeaders = 4;

// What a client says first, and empty settings after it.
std::string ClientPreface();
// A frame's header of nine bytes, which claims a payload of `length` bytes.
std::string FrameHeader(FrameKind kind, uint8_t flags, uint32_t stream, uint32_t length);
// A whole frame. REQUIRES: fewer than 2^24 bytes.
std::string Frame(FrameKind kind, uint8_t flags, uint32_t stream, std::string_view payload);
// One field of a header block (RFC 7541), without any table. REQUIRES: both shorter than 127.
std::string HeaderField(std::string_view name, std::string_view value);
// The header block of a call of gRPC: "/weft.rpc.Control/Join".
std::string CallHeaders(std::string_view path);
// Four bytes, the highest first.
std::string BigEndian(uint32_t value);

}  // namespace weft::testing

#endif  // WEFT_TESTS_ATTACKS_HTTP2_BYTES_H_
