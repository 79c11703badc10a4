#include "onnx_import/edit/tensor_values.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "onnx_import/codec/tensor_codec.h"
#include "platform/mapped_pages.h"

namespace weft {
namespace {

constexpr int64_t kSampled = 8;
constexpr int64_t kCounted = 256;
// Rows of a matrix that are read beside one row of its transposed: they stay in the cache.
constexpr int64_t kBlock = 16;
// Rows and columns after which the pages of both are given back: of each row of a tile the system
// maps 64 KiB, so a tile counts as 32 MiB at most.
constexpr int64_t kTile = 512;

const char* BytesOf(const Tensor& tensor) { return static_cast<const char*>(tensor.raw_data()); }

size_t ElementBytes(const Tensor& tensor) {
  return tensor.num_elements() == 0 ? 0
                                    : tensor.bytes() / static_cast<size_t>(tensor.num_elements());
}

void GiveBack(const Tensor& tensor) {
  ReleaseMappedPages({static_cast<const std::byte*>(tensor.raw_data()), tensor.bytes()});
}

template <typename Bits>
Bits Load(const char* from, int64_t index) {
  Bits bits;  // the payload may be unaligned
  std::memcpy(&bits, from + index * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
  return bits;
}

// Whether two payloads of as many bytes are equal; reads both in windows.
bool EqualBytes(const Tensor& a, const Tensor& b) {
  bool equal = true;
  const size_t bytes = a.bytes();
  for (size_t at = 0; equal && at < bytes; at += kMappedWindow) {
    equal = std::memcmp(BytesOf(a) + at, BytesOf(b) + at, std::min(kMappedWindow, bytes - at)) == 0;
    GiveBack(a);
    GiveBack(b);
  }
  return equal;
}

// b [columns, rows] against a [rows, columns], in the tile from `row` and `column` on.
template <typename Bits>
bool EqualTile(const char* a, const char* b, int64_t rows, int64_t columns, int64_t row,
               int64_t column) {
  const int64_t last_row = std::min(rows, row + kTile);
  const int64_t last_column = std::min(columns, column + kTile);
  for (int64_t block = row; block < last_row; block += kBlock) {
    for (int64_t j = column; j < last_column; ++j) {
      for (int64_t i = block; i < std::min(last_row, block + kBlock); ++i) {
        if (Load<Bits>(a, i * columns + j) != Load<Bits>(b, j * rows + i)) return false;
      }
    }
  }
  return true;
}

template <typename Bits>
bool EqualTransposed(const Tensor& a, const Tensor& b) {
  const int64_t rows = a.shape().dim(0);
  const int64_t columns = a.shape().dim(1);
  for (int64_t row = 0; row < rows; row += kTile) {
    for (int64_t column = 0; column < columns; column += kTile) {
      if (!EqualTile<Bits>(BytesOf(a), BytesOf(b), rows, columns, row, column)) return false;
      GiveBack(a);
      GiveBack(b);
    }
  }
  return true;
}

bool IsTransposedOf(const Tensor& a, const Tensor& b) {
  const bool fits = a.shape().rank() == 2 && b.shape().rank() == 2 &&
                    a.shape().dim(0) == b.shape().dim(1) && a.shape().dim(1) == b.shape().dim(0);
  if (!fits) return false;
  switch (ElementBytes(a)) {
    case 2:
      return EqualTransposed<uint16_t>(a, b);
    case 4:
      return EqualTransposed<uint32_t>(a, b);
    case 8:
      return EqualTransposed<uint64_t>(a, b);
    default:
      return false;
  }
}

}  // namespace

std::optional<Tensor> TensorValues::Read(const FileTensor& tensor) const {
  absl::StatusOr<Tensor> read = DecodeTensor(*tensor.proto, {file_.proto(), file_.external()});
  if (!read.ok() || read->num_elements() == 0) return std::nullopt;
  return *std::move(read);
}

bool TensorValues::AllEqual(const FileTensor& tensor) {
  const auto known = all_equal_.find(tensor.name);
  if (known != all_equal_.end()) return known->second;
  bool& answer = all_equal_[tensor.name];
  const std::optional<Tensor> read = Read(tensor);
  if (!read.has_value()) return answer;
  const size_t element = ElementBytes(*read);
  const size_t last = read->bytes() - element;  // each element against the next
  answer = true;
  for (size_t at = 0; answer && at < last; at += kMappedWindow) {
    const char* const from = BytesOf(*read) + at;
    answer = std::memcmp(from, from + element, std::min(kMappedWindow, last - at)) == 0;
    GiveBack(*read);
  }
  return answer;
}

std::optional<std::string> TensorValues::Sample(const FileTensor& tensor) const {
  const std::optional<Tensor> read = Read(tensor);
  if (!read.has_value()) return std::nullopt;
  const bool is_matrix = read->shape().rank() == 2;
  // The diagonal of a matrix stays where it is when the matrix is transposed.
  const int64_t last =
      (is_matrix ? std::min(read->shape().dim(0), read->shape().dim(1)) : read->num_elements()) - 1;
  const int64_t stride = is_matrix ? read->shape().dim(1) + 1 : 1;
  const size_t element = ElementBytes(*read);
  std::string sample;
  for (int64_t i = 0; i < kSampled; ++i) {
    // Without a product that could overflow.
    const int64_t place = (last / (kSampled - 1) * i + last % (kSampled - 1) * i / (kSampled - 1));
    sample.append(BytesOf(*read) + static_cast<size_t>(place * stride) * element, element);
  }
  GiveBack(*read);
  return sample;
}

bool TensorValues::MostlyDiffer(const FileTensor& tensor) const {
  const std::optional<Tensor> read = Read(tensor);
  if (!read.has_value()) return false;
  const int64_t count = std::min(read->num_elements(), kCounted);
  const size_t element = ElementBytes(*read);
  std::set<std::string_view> different;
  for (int64_t i = 0; i < count; ++i) {
    different.emplace(BytesOf(*read) + static_cast<size_t>(i) * element, element);
  }
  const bool mostly = 2 * static_cast<int64_t>(different.size()) > count;
  GiveBack(*read);
  return mostly;
}

TensorMatch TensorValues::Compare(const FileTensor& a, const FileTensor& b) const {
  if (a.dtype != b.dtype) return TensorMatch::kNone;
  const std::optional<Tensor> first = Read(a);
  const std::optional<Tensor> second = Read(b);
  if (!first.has_value() || !second.has_value()) return TensorMatch::kNone;
  TensorMatch match = TensorMatch::kNone;
  if (first->shape() == second->shape() && EqualBytes(*first, *second)) {
    match = TensorMatch::kEqual;
  } else if (IsTransposedOf(*first, *second)) {
    match = TensorMatch::kTransposed;
  }
  GiveBack(*first);
  GiveBack(*second);
  return match;
}

}  // namespace weft
