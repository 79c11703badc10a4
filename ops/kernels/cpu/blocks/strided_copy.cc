#include "ops/kernels/cpu/blocks/strided_copy.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/transpose_tile.h"

namespace weft::cpu {
namespace {

// Measured on one core, data in and out of memory: about 10 GB/s of each.
constexpr double kNanosecondsPerByte = 0.1;
// A transposed or single element costs about as much as so many bytes of a run.
constexpr double kNanosecondsPerElement = 0.5;

// Axes that a copy can have at most: Tile sees each axis as two.
constexpr int kMaxAxes = 2 * kMaxRank;

template <int kWidth>
void CopyElementRow(const char* from, int64_t from_stride, char* to, int64_t to_stride,
                    int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride, from + i * from_stride, kWidth);
  }
}

// One element many times, side by side.
template <int kWidth>
void FillRow(const char* from, char* to, int64_t count) {
  char element[kWidth];
  std::memcpy(element, from, kWidth);
  if (std::all_of(element, element + kWidth, [&](char byte) { return byte == element[0]; })) {
    std::memset(to, element[0], static_cast<size_t>(count) * kWidth);
    return;
  }
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * kWidth, element, kWidth);
}

template <int kWidth>
void CopyRow(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t count) {
  if (from_stride == 0 && to_stride == kWidth) return FillRow<kWidth>(from, to, count);
  CopyElementRow<kWidth>(from, from_stride, to, to_stride, count);
}

using CopyRowFn = void (*)(const char*, int64_t, char*, int64_t, int64_t);

CopyRowFn RowCopier(int width) {
  switch (width) {
    case 1:
      return CopyRow<1>;
    case 2:
      return CopyRow<2>;
    case 4:
      return CopyRow<4>;
    case 8:
      return CopyRow<8>;
    default:
      return CopyRow<16>;
  }
}

}  // namespace

absl::StatusOr<int> ElementBytes(const PrepareContext& context, DType dtype) {
  const int bits = DTypeBits(dtype);
  if (bits >= 8) return bits / 8;
  return context.Unimplemented(absl::StrCat("no kernel moves elements of ",
                                            std::string(DTypeName(dtype)),
                                            ", which are not whole bytes"));
}

class StridedCopy::Odometer {
 public:
  // Stands at position `flat` of the row-major index space of `axes`.
  Odometer(const std::vector<CopyAxis>& axes, int64_t flat) : axes_(axes) {
    for (int a = static_cast<int>(axes.size()) - 1; a >= 0; --a) {
      index_[a] = flat % axes[a].size;
      flat /= axes[a].size;
      from_ += index_[a] * axes[a].from_stride;
      to_ += index_[a] * axes[a].to_stride;
    }
  }
  int64_t from() const { return from_; }
  int64_t to() const { return to_; }

  void Next() {
    for (int a = static_cast<int>(axes_.size()) - 1; a >= 0; --a) {
      const CopyAxis& axis = axes_[a];
      from_ += axis.from_stride;
      to_ += axis.to_stride;
      if (++index_[a] < axis.size) return;
      from_ -= axis.size * axis.from_stride;
      to_ -= axis.size * axis.to_stride;
      index_[a] = 0;
    }
  }

 private:
  const std::vector<CopyAxis>& axes_;
  std::array<int64_t, kMaxAxes> index_;
  int64_t from_ = 0;
  int64_t to_ = 0;
};

StridedCopy::StridedCopy(std::vector<CopyAxis> axes, int element_bytes, int64_t from_offset,
                         int64_t to_offset)
    : width_(element_bytes),
      from_offset_(from_offset * element_bytes),
      to_offset_(to_offset * element_bytes),
      outer_(std::move(axes)) {
  bytes_ = element_bytes;
  for (CopyAxis& axis : outer_) {
    bytes_ *= axis.size;
    axis.from_stride *= element_bytes;
    axis.to_stride *= element_bytes;
  }
  if (bytes_ == 0) return;
  DropAndMerge();
  WidenElements();
  ChooseMethod();
  for (const CopyAxis& axis : outer_) outer_count_ *= axis.size;
}

// Axes of one index say nothing; neighbours that are one axis to both sides become one.
void StridedCopy::DropAndMerge() {
  std::vector<CopyAxis> merged;
  for (const CopyAxis& axis : outer_) {
    if (axis.size == 1) continue;
    if (!merged.empty() && merged.back().from_stride == axis.size * axis.from_stride &&
        merged.back().to_stride == axis.size * axis.to_stride) {
      merged.back() = {merged.back().size * axis.size, axis.from_stride, axis.to_stride};
    } else {
      merged.push_back(axis);
    }
  }
  outer_ = std::move(merged);
}

// A short innermost run, such as a pair of floats, moves as one wider element.
void StridedCopy::WidenElements() {
  if (outer_.size() < 2) return;
  const CopyAxis& last = outer_.back();
  const int64_t run = last.size * width_;
  const bool is_run = last.from_stride == width_ && last.to_stride == width_;
  if (!is_run || (run != 2 && run != 4 && run != 8 && run != 16)) return;
  width_ = static_cast<int>(run);
  outer_.pop_back();
}

void StridedCopy::ChooseMethod() {
  if (outer_.empty()) outer_.push_back({1, width_, width_});
  inner_ = outer_.back();
  outer_.pop_back();
  if (inner_.from_stride == width_ && inner_.to_stride == width_) {
    method_ = Method::kRuns;
    inner_.size *= width_;
    return;
  }
  method_ = Method::kElements;
  if (inner_.to_stride != width_) return;
  const auto contiguous = std::find_if(outer_.begin(), outer_.end(), [this](const CopyAxis& axis) {
    return axis.from_stride == width_;
  });
  if (contiguous == outer_.end()) return;
  method_ = Method::kTiles;
  tile_ = *contiguous;
  outer_.erase(contiguous);
}

void StridedCopy::Run(const void* from, void* to, int threads) const {
  const char* source = static_cast<const char*>(from) + from_offset_;
  char* target = static_cast<char*>(to) + to_offset_;
  switch (method_) {
    case Method::kNothing:
      return;
    case Method::kRuns:
      return CopyRuns(source, target, threads);
    case Method::kTiles:
      return CopyTiles(source, target, threads);
    case Method::kElements:
      return CopyElements(source, target, threads);
  }
}

// The threads share the bytes, not the runs: one long run is shared as well.
void StridedCopy::CopyRuns(const char* from, char* to, int threads) const {
  const int64_t run = inner_.size;
  ParallelFor(threads, outer_count_ * run, kNanosecondsPerByte, 64,
              [&](int64_t begin, int64_t end) {
                Odometer at(outer_, begin / run);
                int64_t first = begin % run;
                while (begin < end) {
                  const int64_t count = std::min(run - first, end - begin);
                  std::memcpy(to + at.to() + first, from + at.from() + first, count);
                  begin += count;
                  first = 0;
                  at.Next();
                }
              });
}

// The threads share stripes: tile rows along the longer of the two sides.
void StridedCopy::CopyTiles(const char* from, char* to, int threads) const {
  const int64_t edge = TileEdge(width_);
  const bool along_rows = tile_.size >= inner_.size;
  const int64_t stripes = (std::max(tile_.size, inner_.size) + edge - 1) / edge;
  const double stripe_cost =
      kNanosecondsPerElement * static_cast<double>(edge * std::min(tile_.size, inner_.size));
  ParallelFor(threads, outer_count_ * stripes, stripe_cost, 1, [&](int64_t begin, int64_t end) {
    Odometer at(outer_, begin / stripes);
    int64_t stripe = begin % stripes;
    for (; begin < end;) {
      const int64_t count = std::min(stripes - stripe, end - begin);
      const int64_t first = stripe * edge;
      const int64_t last = std::min((stripe + count) * edge, along_rows ? tile_.size : inner_.size);
      const char* source = from + at.from() + first * (along_rows ? width_ : inner_.from_stride);
      char* target = to + at.to() + first * (along_rows ? tile_.to_stride : width_);
      TransposeMatrix(source, inner_.from_stride, target, tile_.to_stride,
                      along_rows ? last - first : tile_.size,
                      along_rows ? inner_.size : last - first, width_);
      begin += count;
      stripe = 0;
      at.Next();
    }
  });
}

void StridedCopy::CopyElements(const char* from, char* to, int threads) const {
  const int64_t row = inner_.size;
  const CopyRowFn copy_row = RowCopier(width_);
  ParallelFor(threads, outer_count_ * row, kNanosecondsPerElement, TileEdge(width_),
              [&](int64_t begin, int64_t end) {
                Odometer at(outer_, begin / row);
                int64_t first = begin % row;
                while (begin < end) {
                  const int64_t count = std::min(row - first, end - begin);
                  copy_row(from + at.from() + first * inner_.from_stride, inner_.from_stride,
                           to + at.to() + first * inner_.to_stride, inner_.to_stride, count);
                  begin += count;
                  first = 0;
                  at.Next();
                }
              });
}

}  // namespace weft::cpu
