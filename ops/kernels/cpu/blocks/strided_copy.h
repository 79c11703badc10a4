// StridedCopy: moves the elements of one tensor to other places of another, whatever their dtype.
// All that transposes, slices, joins, repeats and scatters regularly is one of these.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_STRIDED_COPY_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_STRIDED_COPY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/copy_axis.h"
#include "ops/kernel.h"
#include "tensor/dtype.h"

namespace weft::cpu {

// Bytes of one element of input i's dtype. Unimplemented for strings and for packed elements, which
// are smaller than a byte.
absl::StatusOr<int> ElementBytes(const PrepareContext& context, DType dtype);

// Immutable. Decides once how to copy: in contiguous runs, in transposed tiles, or by element.
class StridedCopy {
 public:
  // Copies nothing.
  StridedCopy() = default;
  // `axes` from major to minor in the order of the target, as far as possible; any number of them.
  // Offsets are those of the first element. `element_bytes` is 1, 2, 4, 8 or 16.
  StridedCopy(std::vector<CopyAxis> axes, int element_bytes, int64_t from_offset = 0,
              int64_t to_offset = 0);

  // The tensors must not overlap. Uses up to `threads` threads where that pays; allocates nothing.
  void Run(const void* from, void* to, int threads) const;

  int64_t bytes() const { return bytes_; }

 private:
  enum class Method : uint8_t { kNothing, kRuns, kTiles, kElements };
  // Offsets of one position of the outer axes, moved forward in order.
  class Odometer;

  void DropAndMerge();
  void WidenElements();
  void ChooseMethod();
  void CopyRuns(const char* from, char* to, int threads) const;
  void CopyTiles(const char* from, char* to, int threads) const;
  void CopyElements(const char* from, char* to, int threads) const;

  Method method_ = Method::kNothing;
  int width_ = 1;      // bytes moved at once, where elements are moved
  int64_t bytes_ = 0;  // in all
  // Strides in bytes from here on.
  int64_t from_offset_ = 0;
  int64_t to_offset_ = 0;
  std::vector<CopyAxis> outer_;
  int64_t outer_count_ = 1;
  CopyAxis
      inner_;      // kRuns: size in bytes; kElements: the innermost axis; kTiles: to_stride = width
  CopyAxis tile_;  // kTiles: the axis with from_stride = width
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_STRIDED_COPY_H_
