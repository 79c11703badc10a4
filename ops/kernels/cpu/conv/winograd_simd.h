// Vector code of Winograd's convolution with windows of 3x3: transforms of tiles, and the products
// between them. winograd.h puts it together.
//
// An image is cut into tiles of m x m outputs (m = 2 or 4), each of (m + 2) x (m + 2) inputs that
// overlap. The transforms are those of Toom and Cook for the points 0, 1, -1 and infinity (m = 2)
// and 0, 5/8, -5/8, 3/2, -3/2 and infinity (m = 4), nested in two dimensions (A. Lavin and S. Gray,
// "Fast Algorithms for Convolutional Neural Networks", 2015). With these points m = 4 has about
// half the rounding errors that 1 and 2 give; all of them and their squares are exact numbers.
//
// All vectors are across tiles, and what is done for a tile does not depend on its place in one.
#ifndef WEFT_OPS_KERNELS_CPU_CONV_WINOGRAD_SIMD_H_
#define WEFT_OPS_KERNELS_CPU_CONV_WINOGRAD_SIMD_H_

#include <cstdint>

namespace weft::cpu {

// Images as tiles. Tile t is of image t / per_image(), and lies in it at row t % per_image() /
// columns.
struct WinogradTiles {
  int64_t m = 4;  // outputs of a tile along each axis: 2 or 4
  int64_t batch = 0;
  int64_t input_channels = 0;
  int64_t output_channels = 0;
  int64_t input_height = 0;
  int64_t input_width = 0;
  int64_t output_height = 0;
  int64_t output_width = 0;
  int64_t pad_top = 0;
  int64_t pad_left = 0;

  int64_t rows() const { return (output_height + m - 1) / m; }
  int64_t columns() const { return (output_width + m - 1) / m; }
  int64_t per_image() const { return rows() * columns(); }
  int64_t total() const { return batch * per_image(); }
  // Elements of a transformed tile, each of which is a matrix product.
  int64_t points() const { return (m + 2) * (m + 2); }
};

// What the vectors of this machine ask of the layout.
struct WinogradVectors {
  int64_t lanes = 0;  // 0: no instruction set that this code is made for
  int64_t rows = 0;   // output channels that are computed together
  int64_t panel = 0;  // vectors of tiles that are computed together
};
WinogradVectors WinogradVectorsHere();

// Tiles [first, first + count), and how what belongs to them lies in memory.
struct WinogradBlock {
  int64_t first = 0;
  int64_t count = 0;
  int64_t padded = 0;  // `count` up to a multiple of the lanes
  int64_t input_channels = 0;
  int64_t product_step = 0;  // floats from the products of a point to those of the next one
  // Floats from a point's transformed inputs to those of the next one. The odd line lets points
  // lie in different sets of a cache.
  int64_t input_step() const { return input_channels * padded + 16; }
};

// Where w[output channel, input channel, 3, 3] is: of a convolution, or of the gradient of its
// input, where the two kinds of channels have changed places and windows are reversed.
struct WinogradFilters {
  int64_t output_channels = 0;
  int64_t input_channels = 0;
  int64_t output_step = 0;  // floats
  int64_t input_step = 0;
  bool reversed = false;
};

// Floats of transformed filters.
int64_t WinogradFilterElements(int64_t points, const WinogradFilters& filters);

// Transforms the filters of row blocks [begin, end): output channels from begin * rows on. `u` is
// [points, row block, input channel, rows]; the last block repeats the last channel.
void TransformWinogradFilters(int64_t m, const WinogradFilters& filters, const float* w,
                              int64_t begin, int64_t end, float* u);

// Floats of scratch memory that the transforms need for blocks of up to `padded` tiles.
int64_t WinogradScratchElements(const WinogradTiles& tiles, int64_t padded);

// Transforms input channels [begin, end) of the block's tiles. `v` is [points (input_step()),
// panel, input channel, tiles of the panel].
void TransformWinogradInput(const WinogradTiles& tiles, const WinogradBlock& block, const float* x,
                            int64_t begin, int64_t end, float* scratch, float* v);

// Products of row blocks [begin, end) for all points. `products` is [points (product_step), output
// channel from begin * rows on, padded]. Each is summed over the input channels in their order.
void MultiplyWinograd(const WinogradTiles& tiles, const WinogradBlock& block, const float* u,
                      const float* v, int64_t begin, int64_t end, float* products);

// Transforms products into y, of output channels [begin, end), the first of which is the first in
// `products`. A null `bias` is zero; else it has an element per output channel.
void TransformWinogradOutput(const WinogradTiles& tiles, const WinogradBlock& block,
                             const float* products, const float* bias, int64_t begin, int64_t end,
                             float* scratch, float* y);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_CONV_WINOGRAD_SIMD_H_
