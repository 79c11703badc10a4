#include "onnx_import/codec/wire_reader.h"

#include "absl/strings/str_cat.h"

namespace weft {

std::optional<uint64_t> WireReader::ReadVarint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (position_ == bytes_.size()) return Fail("the bytes end inside a number");
    const uint8_t byte = static_cast<uint8_t>(bytes_[position_++]);
    value |= static_cast<uint64_t>(byte & 0x7f) << (shift > 63 ? 63 : shift);
    if (byte < 0x80) return value;
  }
  return Fail("a number is longer than 10 bytes");
}

uint64_t VarintOf(const WireField& field) {
  uint64_t value = 0;
  for (size_t i = 0; i < field.payload.size() && i < 10; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(field.payload[i]) & 0x7f) << (7 * i);
  }
  return value;
}

std::optional<WireField> WireReader::Next() {
  const size_t begin = position_;
  const std::optional<uint64_t> tag = ReadVarint();
  if (!tag) return std::nullopt;
  const uint64_t number = *tag >> 3;
  if (number == 0 || number > 536870911) {
    return Fail(absl::StrCat("field number ", number, " does not exist in protobuf"));
  }
  WireField field;
  field.number = static_cast<int>(number);
  field.type = static_cast<WireType>(*tag & 7);
  size_t payload = position_;
  uint64_t size = 0;
  switch (field.type) {
    case WireType::kVarint:
      if (!ReadVarint()) return std::nullopt;
      size = position_ - payload;
      break;
    case WireType::kFixed64:
      size = 8;
      break;
    case WireType::kFixed32:
      size = 4;
      break;
    case WireType::kBytes: {
      const std::optional<uint64_t> length = ReadVarint();
      if (!length) return std::nullopt;
      payload = position_;
      size = *length;
      break;
    }
    default:
      return Fail(absl::StrCat("wire type ", *tag & 7, " of field ", field.number,
                               " does not exist in ONNX"));
  }
  const size_t left = bytes_.size() - payload;
  if (size > left) {
    return Fail(
        absl::StrCat("field ", field.number, " claims ", size, " bytes where ", left, " are left"));
  }
  position_ = payload + size;
  field.payload = bytes_.substr(payload, size);
  field.whole = bytes_.substr(begin, position_ - begin);
  return field;
}

namespace {

void AppendVarint(uint64_t value, std::string& out) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

}  // namespace

void AppendBytesFieldHeader(int number, size_t payload_bytes, std::string& out) {
  AppendVarint(static_cast<uint64_t>(number) << 3 | 2, out);
  AppendVarint(payload_bytes, out);
}

void AppendBytesField(int number, std::string_view payload, std::string& out) {
  AppendBytesFieldHeader(number, payload.size(), out);
  out.append(payload);
}

void AppendVarintField(int number, uint64_t value, std::string& out) {
  AppendVarint(static_cast<uint64_t>(number) << 3, out);
  AppendVarint(value, out);
}

}  // namespace weft
