// ByteRope: encoded bytes in pieces, of which the large ones stay where they lie.
#ifndef WEFT_ONNX_IMPORT_CODEC_BYTE_ROPE_H_
#define WEFT_ONNX_IMPORT_CODEC_BYTE_ROPE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "google/protobuf/io/zero_copy_stream.h"

namespace weft {

// A message that is written field by field: what changes is small and copied, what does not is
// referred to. Movable, not thread-safe.
class ByteRope {
 public:
  // Refers to bytes that outlive the rope. Short ones are copied.
  void AppendView(std::string_view bytes);
  // Refers to bytes that `owner` keeps alive.
  void AppendShared(std::string_view bytes, std::shared_ptr<const void> owner);
  void AppendCopy(std::string_view bytes);
  // Tag and length of a length-delimited field, whose payload follows.
  void AppendFieldHeader(int number, size_t payload_bytes);
  // Field `number` with the bytes of `payload`.
  void AppendField(int number, ByteRope payload);

  size_t size() const { return size_; }
  // The pieces in order; none is empty.
  size_t pieces() const { return pieces_.size(); }
  std::string_view piece(size_t index) const { return pieces_[index].bytes(); }
  // All bytes in one.
  std::string ToString() const;

 private:
  struct Piece {
    std::string own;  // or
    std::string_view view;
    std::shared_ptr<const void> owner = nullptr;  // of the view; null: somebody else
    std::string_view bytes() const { return view.empty() ? std::string_view(own) : view; }
  };
  std::vector<Piece> pieces_;
  size_t size_ = 0;
};

// What protobuf parses a rope from. Borrows it.
class RopeInputStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit RopeInputStream(const ByteRope& rope) : rope_(rope) {}
  bool Next(const void** data, int* size) override;
  void BackUp(int count) override;
  bool Skip(int count) override;
  int64_t ByteCount() const override { return position_; }

 private:
  const ByteRope& rope_;
  size_t piece_ = 0;   // that the next bytes come from
  size_t offset_ = 0;  // in it
  int64_t position_ = 0;
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_BYTE_ROPE_H_
