// Products of float32 matrices by kernels of our own: any strides, any threads, the same bits.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_PACKED_PRODUCT_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_PACKED_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cpu/blocks/product_tiles.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "tensor/tensor.h"

namespace weft::cpu {

// Y[m, n] = alpha A[m, k] B[k, n] + added. Strides are in elements; a transposed operand has them
// the other way round. Rows of Y are contiguous. No size is zero.
struct StridedProduct {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t a_row_stride = 0;
  int64_t a_depth_stride = 1;
  int64_t b_depth_stride = 0;
  int64_t b_column_stride = 1;
  int64_t y_row_stride = 0;
  float alpha = 1.0f;
};

// A product prepared for its sizes, computed as K. Goto and R. van de Geijn describe in "Anatomy of
// High-Performance Matrix Multiplication" (2008): blocks of B and A are packed for the caches, and
// tiles of Y stay in registers (product_tiles.h).
//
// An element of Y is a function of its row of A, its column of B and k alone. Each kProductDepth
// products are summed in order, from zero, fused where the instruction set has that; each such sum
// times alpha is added to the element in order. So neither threads nor other rows change its bits,
// nor does it matter whether B is constant. AVX2 and AVX-512 give the same.
//
// Used by one thread at a time, whose ParallelFor it calls. Run allocates nothing.
class PackedProduct {
 public:
  PackedProduct() = default;
  // Takes its workspace from `layout`, whose memory Run gets. `constant_b`: B is packed at the
  // first run, into memory that this allocates, and not read again; its mapped pages are released.
  // ResourceExhausted without memory for it.
  static absl::StatusOr<PackedProduct> Create(const StridedProduct& product, int threads,
                                              bool constant_b, WorkspaceLayout& layout);

  // `added`: null, or rows of contiguous columns `added_row_stride` elements apart (0: one row for
  // all). It may be `y`, and overlaps it in no other way.
  void Run(const float* a, const float* b, const float* added, int64_t added_row_stride, float* y,
           void* workspace);

  size_t retained_bytes() const { return constant_.valid() ? constant_.bytes() : 0; }

 private:
  // What a run works with.
  struct Operands {
    const float* a;
    const float* b;
    const float* added;
    int64_t added_row_stride;
    float* y;
    void* workspace;
  };
  // A part of B: depth [depth, depth_end) of columns [column, column_end).
  struct Chunk {
    int64_t depth;
    int64_t depth_end;
    int64_t column;
    int64_t column_end;
  };
  // A part of Y.
  struct Piece {
    int64_t row;
    int64_t row_end;
    int64_t column;
    int64_t column_end;
  };

  // Where a piece finds B.
  enum class BIs : uint8_t {
    kConstant,  // packed once
    kShared,    // packed a chunk at a time, by all threads for all
    kOwn,       // packed panel by panel for the piece that needs it
    kPlain,     // not packed
  };

  void Plan(bool constant_b);
  BIs ChooseB() const;
  void PlanPieces();
  void Reserve(WorkspaceLayout& layout);
  void RunChunk(const Operands& run, const Chunk& chunk);
  void PackChunk(const float* b, const Chunk& chunk, float* packed) const;
  Piece PieceOf(const Chunk& chunk, int64_t index) const;
  void RunPiece(const Operands& run, const Chunk& chunk, const Piece& piece, int slot) const;
  void PackRows(const Operands& run, const Piece& piece, BlockProduct& block, int64_t k,
                float* to) const;
  // `count` of depth from `depth` on, of up to a tile's columns from `column` on.
  void PackColumns(const float* b, int64_t depth, int64_t count, int64_t column, int64_t columns,
                   float* to) const;

  StridedProduct product_;
  ProductTile tile_;
  int threads_ = 1;
  bool packs_a_ = true;
  BIs b_is_ = BIs::kShared;
  int64_t chunk_depth_ = 0;
  int64_t chunk_columns_ = 0;
  int64_t piece_rows_ = 0;
  int64_t piece_columns_ = 0;
  size_t b_offset_ = 0;
  size_t slots_offset_ = 0;
  size_t slot_bytes_ = 0;
  size_t panel_offset_ = 0;  // within a slot
  Tensor constant_;          // B in panels of all its depth
  bool is_filled_ = false;
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_PACKED_PRODUCT_H_
