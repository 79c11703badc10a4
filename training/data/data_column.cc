#include "training/data/data_column.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "platform/checksum.h"
#include "training/records/data_error.h"

namespace weft {
namespace {

constexpr size_t kChecksumBlock = size_t{64} << 10;
constexpr size_t kChecksumBlocks = 256;

class TensorColumn final : public DataColumn {
 public:
  TensorColumn(ColumnInfo info, Tensor tensor)
      : DataColumn(std::move(info)), tensor_(std::move(tensor)) {}

  absl::Status Read(int64_t row, void* target) const override {
    std::memcpy(target, Peek(row), static_cast<size_t>(sample_bytes()));
    return absl::OkStatus();
  }
  const void* Peek(int64_t row) const override {
    return static_cast<const std::byte*>(tensor_.raw_data()) + row * sample_bytes();
  }
  const Tensor* tensor() const override { return &tensor_; }

 private:
  const Tensor tensor_;
};

class RecordColumn final : public DataColumn {
 public:
  RecordColumn(ColumnInfo info, SharedBytes bytes, RecordLayout layout)
      : DataColumn(std::move(info)), bytes_(std::move(bytes)), layout_(layout) {}

  absl::Status Read(int64_t row, void* target) const override {
    auto* const to = static_cast<std::byte*>(target);
    const std::byte* const from = At(row);
    const auto size = static_cast<size_t>(sample_bytes());
    std::copy(from, from + size, to);
    const auto width = static_cast<size_t>(DTypeBytes(dtype(), 1));
    if (layout_.swap) {
      for (size_t i = 0; i + width <= size; i += width) std::reverse(to + i, to + i + width);
    }
    const auto is_no_bool = [](std::byte byte) { return byte > std::byte{1}; };
    if (dtype() == DType::kBool && std::any_of(to, to + size, is_no_bool)) {
      return DamagedData(info().source,
                         absl::StrCat("sample ", row, " has a bool that is neither 0 nor 1"));
    }
    return absl::OkStatus();
  }
  const void* Peek(int64_t row) const override {
    return layout_.swap || dtype() == DType::kBool ? nullptr : At(row);
  }

 private:
  const std::byte* At(int64_t row) const {
    return bytes_.bytes.data() + layout_.offset + static_cast<size_t>(row) * layout_.stride;
  }

  const SharedBytes bytes_;
  const RecordLayout layout_;
};

class WindowColumn final : public DataColumn {
 public:
  WindowColumn(ColumnInfo info, SharedBytes tokens, const WindowLayout& layout)
      : DataColumn(std::move(info)), tokens_(std::move(tokens)), layout_(layout) {}

  absl::Status Read(int64_t row, void* target) const override {
    std::memcpy(target, Peek(row), static_cast<size_t>(sample_bytes()));
    return absl::OkStatus();
  }
  const void* Peek(int64_t row) const override {
    return tokens_.bytes.data() + (row * layout_.stride + layout_.shift) * DTypeBytes(dtype(), 1);
  }

 private:
  const SharedBytes tokens_;
  const WindowLayout layout_;
};

}  // namespace

DataColumn::DataColumn(ColumnInfo info)
    : info_(std::move(info)),
      sample_elements_(info_.sample_shape.num_elements()),
      sample_bytes_(DTypeBytes(info_.dtype, sample_elements_)) {}

Shape DataColumn::shape() const {
  Shape shape({samples()});
  for (const int64_t dim : sample_shape().dims()) shape.AddDim(dim);
  return shape;
}

std::unique_ptr<DataColumn> NewTensorColumn(ColumnInfo info, Tensor tensor) {
  info.samples = tensor.shape().dim(0);
  info.dtype = tensor.dtype();
  info.sample_shape = Shape(tensor.shape().dims().subspan(1));
  info.checksum = Checksum({static_cast<const std::byte*>(tensor.raw_data()), tensor.bytes()});
  info.held_bytes = static_cast<int64_t>(tensor.bytes());
  return std::make_unique<TensorColumn>(std::move(info), std::move(tensor));
}

absl::StatusOr<std::unique_ptr<DataColumn>> NewRecordColumn(ColumnInfo info, SharedBytes bytes,
                                                            RecordLayout layout) {
  const auto sample = static_cast<size_t>(DTypeBytes(info.dtype, info.sample_shape.num_elements()));
  const size_t size = bytes.bytes.size();
  const auto samples = static_cast<size_t>(info.samples);
  const bool fits =
      layout.offset <= size && sample <= layout.stride &&
      (samples == 0 ||
       (layout.stride > 0 && (samples - 1) <= (size - layout.offset) / layout.stride &&
        (samples - 1) * layout.stride + sample <= size - layout.offset));
  if (!fits) {
    return DamagedData(info.source, absl::StrCat("truncated: ", size, " bytes, expected ", samples,
                                                 " records of ", layout.stride, " bytes"));
  }
  info.checksum = SampledChecksum(bytes.bytes);
  info.is_work = bytes.is_mapped;
  info.held_bytes = bytes.is_mapped ? 0 : static_cast<int64_t>(size);
  return std::make_unique<RecordColumn>(std::move(info), std::move(bytes), layout);
}

absl::StatusOr<std::unique_ptr<DataColumn>> NewWindowColumn(ColumnInfo info, SharedBytes tokens,
                                                            const WindowLayout& layout) {
  const auto count =
      static_cast<int64_t>(tokens.bytes.size()) / std::max<int64_t>(1, DTypeBytes(info.dtype, 1));
  if (count <= layout.length) {
    return UnreadableData(info.source,
                          absl::StrCat("holds ", count, " tokens; a sample of ", layout.length,
                                       " and the one after need ", layout.length + 1,
                                       "; make --sequence-length shorter"));
  }
  info.samples = (count - layout.length - 1) / layout.stride + 1;
  info.sample_shape = Shape{layout.length};
  info.is_amount = false;
  info.is_sequence = true;
  info.overlap = (layout.length - 1) / layout.stride;
  info.checksum = SampledChecksum(tokens.bytes);
  info.held_bytes = tokens.is_mapped ? 0 : static_cast<int64_t>(tokens.bytes.size());
  return std::make_unique<WindowColumn>(std::move(info), std::move(tokens), layout);
}

uint64_t SampledChecksum(std::span<const std::byte> bytes) {
  if (bytes.size() <= kChecksumBlock * kChecksumBlocks) return Checksum(bytes);
  std::vector<uint64_t> sums = {bytes.size()};
  const size_t last = bytes.size() - kChecksumBlock;
  for (size_t i = 0; i < kChecksumBlocks; ++i) {
    // In floating point, since the product may not fit; exact enough to be the same everywhere.
    const auto at = static_cast<size_t>(static_cast<double>(last) * static_cast<double>(i) /
                                        (kChecksumBlocks - 1));
    sums.push_back(Checksum(bytes.subspan(std::min(at, last), kChecksumBlock)));
  }
  return Checksum(std::as_bytes(std::span(sums)));
}

}  // namespace weft
