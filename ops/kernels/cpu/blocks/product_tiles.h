// The inner part of a product of float32 matrices: tiles of Y that stay in registers, and the order
// in which they read packed operands. packed_product.h calls it.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_PRODUCT_TILES_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_PRODUCT_TILES_H_

#include <cstdint>

namespace weft::cpu {

// So many addends of an element of Y are summed in a register before they are added to Y.
inline constexpr int64_t kProductDepth = 256;

// The largest tile, of the instruction set at hand. A panel of A is up to `rows` of its rows, a
// panel of B `columns` of its columns; both are packed with their depth as the outer axis.
struct ProductTile {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_step = 0;      // floats per depth of a panel of A; of B it is `columns`
  int64_t strided_rows = 0;  // the most rows of a tile whose A is not packed
};
ProductTile TileOfProduct();

// A block of rows is cut into as few panels as there can be, of about equal height.
struct RowPanels {
  RowPanels(int64_t rows, int64_t max_rows)
      : count((rows + max_rows - 1) / max_rows), height(rows / count), higher(rows % count) {}
  int64_t HeightOf(int64_t panel) const { return panel < higher ? height + 1 : height; }
  int64_t count;
  int64_t height;
  int64_t higher;  // so many of the first have one row more
};

// Packs `count` <= `step` lines of `depth` elements: to[k * step + i] is element k of line i, at
// from[i * line_stride + k * depth_stride]. What lies between the lines and `step` is anything.
// `step` is row_step or columns of the tile.
void PackPanel(const float* from, int64_t line_stride, int64_t depth_stride, int64_t count,
               int64_t depth, float* to, int64_t step);

// Packs columns of B into panels of a tile's columns, `panel_stride` apart: element [k, j] is at
// from[k * depth_stride + j * column_stride].
void PackPanels(const float* from, int64_t column_stride, int64_t depth_stride, int64_t columns,
                int64_t depth, float* to, int64_t panel_stride);

// Y[rows, columns] = alpha A B + added, at most kProductDepth deep. An element is `added` plus
// alpha times the sum of its products in the order of their depth, fused where the instruction set
// has that: the same bits whatever the rows and columns beside it, and whatever is packed.
struct BlockProduct {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  // Packed: panels as RowPanels cuts them, depth * row_step apart. Else where they are.
  const float* a = nullptr;
  bool a_is_packed = true;
  int64_t a_row_stride = 0;
  int64_t a_depth_stride = 0;
  // Columns side by side, rows `b_step` apart. Packed: a tile's columns each, `b_panel_stride`
  // apart. Else b_step is B's own and b_panel_stride a tile's columns.
  const float* b = nullptr;
  int64_t b_step = 0;
  int64_t b_panel_stride = 0;
  float alpha = 1.0f;
  const float* added = nullptr;  // null: none; may be y
  int64_t added_stride = 0;      // from row to row
  float* y = nullptr;
  int64_t y_stride = 0;
};
void MultiplyBlock(const BlockProduct& block);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_PRODUCT_TILES_H_
