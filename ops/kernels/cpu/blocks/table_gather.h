// TableGather: copies elements whose source index along each axis is a table of that axis (padding,
// cropping, nearest-neighbour resizing).
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_TABLE_GATHER_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_TABLE_GATHER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/kernel.h"

namespace weft::cpu {

// Immutable.
class TableGather {
 public:
  // tables[axis][i] is the index in `from` along `axis` of output index i, or -1: the element is
  // the fill value, whatever the other axes say. `element_bytes` is 1, 2, 4, 8 or 16. REQUIRES: one
  // table per axis of `from`, indices in range.
  TableGather(const Shape& from, std::vector<std::vector<int64_t>> tables, int element_bytes);

  // `fill` points to one element. The tensors must not overlap. Allocates nothing.
  void Run(const void* from, const void* fill, void* to, int threads) const;

 private:
  // Output elements [to, to + count) of a row are source elements from `from` on; -1: fill.
  struct Segment {
    int64_t to;
    int64_t from;
    int64_t count;
  };
  void CopyRow(const char* from, const void* fill, char* to) const;
  int64_t RowSource(int64_t row) const;

  int width_ = 1;                            // bytes of an element
  std::vector<std::vector<int64_t>> outer_;  // tables, in bytes of the source; -1: fill
  int64_t rows_ = 1;
  int64_t row_elements_ = 1;       // of the output
  std::vector<Segment> segments_;  // of a row, where runs are long
  std::vector<int64_t> gather_;    // of a row, where they are short
};

// A kernel that moves elements of input 0 to output 0 by the tables, any dtype but strings. The
// fill value is the one element of input `fill_input`, or zero when that is negative or absent.
absl::StatusOr<std::unique_ptr<Kernel>> MakeTableGather(const PrepareContext& context,
                                                        std::vector<std::vector<int64_t>> tables,
                                                        int fill_input);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_TABLE_GATHER_H_
