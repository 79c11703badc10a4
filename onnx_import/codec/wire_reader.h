// Reads the fields of one encoded protobuf message, one after the other, without decoding them.
#ifndef WEFT_ONNX_IMPORT_CODEC_WIRE_READER_H_
#define WEFT_ONNX_IMPORT_CODEC_WIRE_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Protobuf's wire types.
enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// One field of an encoded message. Borrows its bytes.
struct WireField {
  int number = 0;
  WireType type = WireType::kVarint;
  std::string_view whole;    // tag and payload
  std::string_view payload;  // kBytes: what the length counts; else the encoded number
};

// Borrows the bytes.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  bool AtEnd() const { return position_ == bytes_.size(); }
  // Bytes read so far.
  size_t position() const { return position_; }
  // The next field; nullopt when the encoding is broken: error() then says how. REQUIRES: !AtEnd().
  std::optional<WireField> Next();
  const std::string& error() const { return error_; }

 private:
  std::optional<uint64_t> ReadVarint();
  std::nullopt_t Fail(std::string message) {
    error_ = std::move(message);
    return std::nullopt;
  }

  std::string_view bytes_;
  size_t position_ = 0;
  std::string error_;
};

// The number of a kVarint field that WireReader::Next has read.
uint64_t VarintOf(const WireField& field);

// Appends tag and length of field `number` with a payload of so many bytes, which is to follow.
void AppendBytesFieldHeader(int number, size_t payload_bytes, std::string& out);
// Appends field `number` with a length-delimited payload.
void AppendBytesField(int number, std::string_view payload, std::string& out);
// Appends a varint field.
void AppendVarintField(int number, uint64_t value, std::string& out);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_WIRE_READER_H_
