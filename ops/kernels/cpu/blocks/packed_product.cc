#include "ops/kernels/cpu/blocks/packed_product.h"

#include <algorithm>
#include <cmath>

#include "ops/kernels/cpu/blocks/parallel.h"
#include "platform/mapped_pages.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// A chunk of packed B, in floats: it stays in the second-level cache, or is read from the last.
constexpr int64_t kChunkFloats = int64_t{1} << 18;
constexpr int64_t kChunkDepth = kProductDepth;
// Panels of A in a piece at most: with kProductDepth they stay in the second-level cache.
constexpr int64_t kPieceRowPanels = 12;
// Panels of B in a piece at least: fewer do not pay for packing A.
constexpr int64_t kPieceColumnPanels = 8;
constexpr int64_t kPiecesPerThread = 4;
// With so few panels of A, a panel of B is packed for one thread and used while it is in the
// first-level cache.
constexpr int64_t kFewRowPanels = 2;
// Up to here B is read where it is: reading it so seldom costs less than packing it.
constexpr int64_t kFewRows = 64;
// So few are multiplied by whole rows of B (product_tiles.h).
constexpr int64_t kFlatRows = 4;
// A B that stays in the second-level cache beside all else, in floats.
constexpr int64_t kSmallB = int64_t{1} << 14;
// Rows of B as many floats apart lie in a few sets of the caches, where they evict each other.
constexpr int64_t kCrowdedStride = 1024;
// Up to here A is read where it is.
constexpr int64_t kFewColumns = 64;

constexpr double kFlopsPerNanosecond = 60;
constexpr double kNanosecondsPerPacked = 0.2;

int64_t CeilOf(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

absl::StatusOr<PackedProduct> PackedProduct::Create(const StridedProduct& product, int threads,
                                                    bool constant_b, WorkspaceLayout& layout) {
  PackedProduct packed;
  packed.product_ = product;
  packed.tile_ = TileOfProduct();
  packed.threads_ = threads;
  if (constant_b) {
    const int64_t panels = CeilOf(product.n, packed.tile_.columns);
    WEFT_ASSIGN_OR_RETURN(
        packed.constant_,
        Tensor::Allocate(DType::kFloat32, Shape{panels, product.k, packed.tile_.columns}));
  }
  packed.Plan(constant_b);
  packed.Reserve(layout);
  return packed;
}

PackedProduct::BIs PackedProduct::ChooseB() const {
  const bool may_be_plain = product_.b_column_stride == 1 && product_.m <= kFewRows;
  const bool is_crowded = product_.b_depth_stride % kCrowdedStride == 0;
  const bool is_small = product_.n * product_.k <= kSmallB;
  if (may_be_plain && (product_.m <= kFlatRows || is_small || !is_crowded)) return BIs::kPlain;
  return CeilOf(product_.m, tile_.rows) > kFewRowPanels ? BIs::kShared : BIs::kOwn;
}

void PackedProduct::Plan(bool constant_b) {
  b_is_ = constant_b ? BIs::kConstant : ChooseB();
  const int64_t few = product_.a_depth_stride == 1 ? 2 * kFewColumns : kFewColumns;
  packs_a_ = product_.m > kFlatRows && product_.n > few;
  chunk_depth_ = product_.k;
  chunk_columns_ = product_.n;
  if (b_is_ == BIs::kShared || b_is_ == BIs::kConstant) {
    chunk_depth_ = std::min(product_.k, kChunkDepth);
    const int64_t fitting = kChunkFloats / chunk_depth_ / tile_.columns * tile_.columns;
    chunk_columns_ = std::min(product_.n, std::max(fitting, tile_.columns));
  }
  PlanPieces();
}

void PackedProduct::PlanPieces() {
  const int64_t row_panels = CeilOf(product_.m, tile_.rows);
  const int64_t column_panels = CeilOf(chunk_columns_, tile_.columns);
  const double nanoseconds = 2 * static_cast<double>(product_.m * chunk_columns_) *
                             static_cast<double>(chunk_depth_) / kFlopsPerNanosecond;
  const int64_t worth = std::max<int64_t>(
      static_cast<int64_t>(std::min(nanoseconds / kNanosecondsPerThread,
                                    static_cast<double>(kPiecesPerThread * threads_))),
      1);
  const int64_t pieces = threads_ > 1 && worth > 1 ? worth : 1;
  const int64_t by_rows = b_is_ == BIs::kOwn ? 1 : std::min(pieces, CeilOf(row_panels, 4));
  const int64_t heights = std::max(by_rows, CeilOf(row_panels, kPieceRowPanels));
  const int64_t rows = CeilOf(row_panels, heights);
  const int64_t by_columns = CeilOf(pieces, CeilOf(row_panels, rows));
  const int64_t columns =
      std::min(std::max(CeilOf(column_panels, by_columns), kPieceColumnPanels), column_panels);
  piece_rows_ = rows * tile_.rows;
  piece_columns_ = columns * tile_.columns;
}

void PackedProduct::Reserve(WorkspaceLayout& layout) {
  const int64_t depth = std::min(product_.k, kProductDepth);
  if (b_is_ == BIs::kShared) {
    const int64_t panels = CeilOf(chunk_columns_, tile_.columns);
    b_offset_ = layout.Add(panels * tile_.columns * chunk_depth_ * sizeof(float));
  }
  const int64_t rows = std::min(product_.m, piece_rows_);
  WorkspaceLayout slot;
  if (packs_a_) slot.Add(CeilOf(rows, tile_.rows) * tile_.row_step * depth * sizeof(float));
  panel_offset_ = slot.total();
  if (b_is_ == BIs::kOwn) slot.Add(tile_.columns * depth * sizeof(float));
  slot_bytes_ = slot.total();
  const int64_t pieces = CeilOf(product_.m, piece_rows_) * CeilOf(chunk_columns_, piece_columns_);
  slots_offset_ = layout.Add(std::min<int64_t>(threads_, pieces) * slot_bytes_);
}

void PackedProduct::Run(const float* a, const float* b, const float* added,
                        int64_t added_row_stride, float* y, void* workspace) {
  if (b_is_ == BIs::kConstant && !is_filled_) {
    PackChunk(b, {0, product_.k, 0, product_.n}, constant_.mutable_data<float>().data());
    const int64_t elements = product_.k * product_.n;
    ReleaseMappedPages({reinterpret_cast<const std::byte*>(b), elements * sizeof(float)});
    is_filled_ = true;
  }
  const Operands run{a, b, added, added_row_stride, y, workspace};
  for (int64_t column = 0; column < product_.n; column += chunk_columns_) {
    const int64_t column_end = std::min(product_.n, column + chunk_columns_);
    for (int64_t depth = 0; depth < product_.k; depth += chunk_depth_) {
      RunChunk(run, {depth, std::min(product_.k, depth + chunk_depth_), column, column_end});
    }
  }
}

void PackedProduct::RunChunk(const Operands& run, const Chunk& chunk) {
  if (b_is_ == BIs::kShared) {
    PackChunk(run.b, chunk, static_cast<float*>(At(run.workspace, b_offset_)));
  }
  const int64_t by_columns = CeilOf(chunk.column_end - chunk.column, piece_columns_);
  const int64_t pieces = CeilOf(product_.m, piece_rows_) * by_columns;
  const double nanoseconds =
      2 * static_cast<double>(product_.m) *
      static_cast<double>((chunk.column_end - chunk.column) * (chunk.depth_end - chunk.depth)) /
      kFlopsPerNanosecond / static_cast<double>(pieces);
  ParallelForSlots(threads_, pieces, nanoseconds, 1, [&](int slot, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) RunPiece(run, chunk, PieceOf(chunk, i), slot);
  });
}

void PackedProduct::PackChunk(const float* b, const Chunk& chunk, float* packed) const {
  // So much of a row is read at once.
  constexpr int64_t kPanels = 8;
  const int64_t depth = chunk.depth_end - chunk.depth;
  const int64_t columns = chunk.column_end - chunk.column;
  const int64_t width = kPanels * tile_.columns;
  const double nanoseconds = kNanosecondsPerPacked * static_cast<double>(width * depth);
  ParallelFor(threads_, CeilOf(columns, width), nanoseconds, 1, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * width;
    const int64_t count = std::min(columns, end * width) - first;
    for (int64_t k = 0; k < depth; k += kProductDepth) {
      PackPanels(b + (chunk.depth + k) * product_.b_depth_stride +
                     (chunk.column + first) * product_.b_column_stride,
                 product_.b_column_stride, product_.b_depth_stride, count,
                 std::min(kProductDepth, depth - k), packed + first * depth + k * tile_.columns,
                 depth * tile_.columns);
    }
  });
}

void PackedProduct::PackColumns(const float* b, int64_t depth, int64_t count, int64_t column,
                                int64_t columns, float* to) const {
  PackPanel(b + depth * product_.b_depth_stride + column * product_.b_column_stride,
            product_.b_column_stride, product_.b_depth_stride, columns, count, to, tile_.columns);
}

PackedProduct::Piece PackedProduct::PieceOf(const Chunk& chunk, int64_t index) const {
  const int64_t by_columns = CeilOf(chunk.column_end - chunk.column, piece_columns_);
  const int64_t row = index / by_columns * piece_rows_;
  const int64_t column = chunk.column + index % by_columns * piece_columns_;
  return {row, std::min(product_.m, row + piece_rows_), column,
          std::min(chunk.column_end, column + piece_columns_)};
}

// Makes A's rows of the piece, of block.depth from k on, the block's.
void PackedProduct::PackRows(const Operands& run, const Piece& piece, BlockProduct& block,
                             int64_t k, float* to) const {
  const float* const a = run.a + piece.row * product_.a_row_stride + k * product_.a_depth_stride;
  block.a = packs_a_ ? to : a;
  if (!packs_a_) return;
  const RowPanels panels(block.rows, tile_.rows);
  int64_t row = 0;
  for (int64_t p = 0; p < panels.count; ++p) {
    const int64_t height = panels.HeightOf(p);
    PackPanel(a + row * product_.a_row_stride, product_.a_row_stride, product_.a_depth_stride,
              height, block.depth, to + p * block.depth * tile_.row_step, tile_.row_step);
    row += height;
  }
}

void PackedProduct::RunPiece(const Operands& run, const Chunk& chunk, const Piece& piece,
                             int slot) const {
  char* const memory = static_cast<char*>(At(run.workspace, slots_offset_)) + slot * slot_bytes_;
  float* const panel = reinterpret_cast<float*>(memory + panel_offset_);
  const bool is_constant = b_is_ == BIs::kConstant;
  const bool is_plain = b_is_ == BIs::kPlain;
  // Where packed B begins, and how much depth its panels have.
  const float* const packed = is_constant ? constant_.data<float>().data()
                                          : static_cast<float*>(At(run.workspace, b_offset_));
  const int64_t first_depth = is_constant ? 0 : chunk.depth;
  const int64_t first_column = is_constant ? 0 : chunk.column;
  const int64_t kept = is_constant ? product_.k : chunk.depth_end - chunk.depth;
  BlockProduct block;
  block.rows = piece.row_end - piece.row;
  block.a_is_packed = packs_a_;
  block.a_row_stride = product_.a_row_stride;
  block.a_depth_stride = product_.a_depth_stride;
  block.b_step = is_plain ? product_.b_depth_stride : tile_.columns;
  block.b_panel_stride = is_plain ? tile_.columns : kept * tile_.columns;
  block.alpha = product_.alpha;
  block.y_stride = product_.y_row_stride;
  const int64_t step = b_is_ == BIs::kOwn ? tile_.columns : piece.column_end - piece.column;
  for (int64_t k = chunk.depth; k < chunk.depth_end; k += kProductDepth) {
    block.depth = std::min(kProductDepth, chunk.depth_end - k);
    PackRows(run, piece, block, k, reinterpret_cast<float*>(memory));
    for (int64_t j = piece.column; j < piece.column_end; j += step) {
      block.columns = std::min(step, piece.column_end - j);
      block.y = run.y + piece.row * product_.y_row_stride + j;
      block.added = block.y;
      block.added_stride = block.y_stride;
      if (k == 0) {
        block.added_stride = run.added_row_stride;
        block.added =
            run.added == nullptr ? nullptr : run.added + piece.row * run.added_row_stride + j;
      }
      switch (b_is_) {
        case BIs::kPlain:
          block.b = run.b + k * product_.b_depth_stride + j;
          break;
        case BIs::kOwn:
          PackColumns(run.b, k, block.depth, j, block.columns, panel);
          block.b = panel;
          break;
        default:
          block.b = packed + (j - first_column) * kept + (k - first_depth) * tile_.columns;
      }
      MultiplyBlock(block);
    }
  }
}

}  // namespace weft::cpu
