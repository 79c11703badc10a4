// Winograd's convolution for windows of 3x3 at stride 1, in float32: 2.25 (tiles of 2x2 outputs) or
// 4 times fewer multiplications (4x4) than by the definition. winograd_simd.h has the algorithm.
#ifndef WEFT_OPS_KERNELS_CPU_CONV_WINOGRAD_H_
#define WEFT_OPS_KERNELS_CPU_CONV_WINOGRAD_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/conv/winograd_simd.h"

namespace weft::cpu {

// About how large the rounding errors of an output are, as root mean square over that of the
// outputs, for inputs and filters without structure: they grow with the square root of the summed
// channels. `m` is 2 or 4, or 1 for sums by the definition in one order. winograd_test holds
// measured errors to it.
double WinogradError(int64_t m, int64_t input_channels);

// The tile that a convolution takes; `tiles.m` is not looked at. 0: Winograd does not pay, or its
// errors are above kWinogradErrorLimit. Filters that are not `constant` are transformed at each
// run, which few samples do not repay. In a strict run the batch does not count, since the bits of
// a sample must not depend on it.
inline constexpr double kWinogradErrorLimit = 4e-6;
int64_t ChooseWinogradTile(const WinogradTiles& tiles, bool constant, bool strict);

// How the work is cut. No cut changes the bits of an output.
struct WinogradCut {
  int64_t tiles = 0;     // of a block; 0: by the caches
  int64_t channels = 0;  // output channels that are in memory as products; 0: by the caches
};

// What the kernel computes. Input 0 is the image [batch, input_channels, input_height,
// input_width], input 1 the filters, output 0 the other image.
struct WinogradConv {
  WinogradTiles tiles;
  WinogradFilters filters;
  bool bias = false;  // input 2
  WinogradCut cut;
};

// Constant filters are transformed once, at the first run, and kept. REQUIRES: all sizes are
// positive, and WinogradVectorsHere().lanes > 0.
absl::StatusOr<std::unique_ptr<Kernel>> MakeWinogradConv(const PrepareContext& context,
                                                         const WinogradConv& conv);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_CONV_WINOGRAD_H_
