#include "onnx_import/codec/byte_rope.h"

#include <algorithm>

#include "onnx_import/codec/wire_reader.h"

namespace weft {
namespace {

// A piece costs about as much.
constexpr size_t kShortBytes = 256;

}  // namespace

void ByteRope::AppendView(std::string_view bytes) { AppendShared(bytes, nullptr); }

void ByteRope::AppendShared(std::string_view bytes, std::shared_ptr<const void> owner) {
  if (bytes.size() <= kShortBytes) return AppendCopy(bytes);
  pieces_.push_back({{}, bytes, std::move(owner)});
  size_ += bytes.size();
}

void ByteRope::AppendCopy(std::string_view bytes) {
  if (bytes.empty()) return;
  if (pieces_.empty() || !pieces_.back().view.empty()) pieces_.emplace_back();
  pieces_.back().own.append(bytes);
  size_ += bytes.size();
}

void ByteRope::AppendFieldHeader(int number, size_t payload_bytes) {
  std::string header;
  AppendBytesFieldHeader(number, payload_bytes, header);
  AppendCopy(header);
}

void ByteRope::AppendField(int number, ByteRope payload) {
  AppendFieldHeader(number, payload.size());
  for (Piece& piece : payload.pieces_) {
    if (piece.view.empty()) {
      AppendCopy(piece.own);
      continue;
    }
    size_ += piece.view.size();
    pieces_.push_back(std::move(piece));
  }
}

std::string ByteRope::ToString() const {
  std::string bytes;
  bytes.reserve(size_);
  for (const Piece& piece : pieces_) bytes.append(piece.bytes());
  return bytes;
}

bool RopeInputStream::Next(const void** data, int* size) {
  // Lengths are int: a whole model has less than 2 GiB.
  while (piece_ < rope_.pieces() && offset_ == rope_.piece(piece_).size()) {
    ++piece_;
    offset_ = 0;
  }
  if (piece_ == rope_.pieces()) return false;
  const std::string_view rest = rope_.piece(piece_).substr(offset_);
  *data = rest.data();
  *size = static_cast<int>(rest.size());
  offset_ += rest.size();
  position_ += static_cast<int64_t>(rest.size());
  return true;
}

// Of what Next gave last, so within one piece.
void RopeInputStream::BackUp(int count) {
  offset_ -= static_cast<size_t>(count);
  position_ -= count;
}

bool RopeInputStream::Skip(int count) {
  const void* data = nullptr;
  int size = 0;
  while (count > 0) {
    if (!Next(&data, &size)) return false;
    if (size > count) BackUp(size - count);
    count -= std::min(size, count);
  }
  return true;
}

}  // namespace weft
