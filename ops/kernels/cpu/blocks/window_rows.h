// Windows over any number of image axes, a tap and a row of windows at a time, so that the inner
// loop runs along the last axis.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_WINDOW_ROWS_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_WINDOW_ROWS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "ops/window.h"
#include "tensor/shape.h"

namespace weft::cpu {

// The windows of one row whose element `tap` lies in the image: output elements output + o for o in
// [first, last), each with its input element input + o * stride.
struct WindowRow {
  int64_t tap = 0;
  int64_t output = 0;  // of the row's window 0
  int64_t input = 0;   // may lie outside: only o in [first, last) are inside
  int64_t stride = 1;
  int64_t first = 0;
  int64_t last = 0;
};

// The outputs of `axis` whose window element `t` lies in the image: [first, last). Padding may be
// negative.
struct OutputRange {
  int64_t first;
  int64_t last;
};
inline OutputRange OutputsReached(const WindowAxis& axis, int64_t t) {
  const int64_t offset = axis.pad_begin - t * axis.dilation;
  const int64_t first = offset <= 0 ? 0 : (offset + axis.stride - 1) / axis.stride;
  const int64_t beyond = axis.input + offset;  // output * stride must stay below
  const int64_t last = beyond <= 0 ? 0 : (beyond + axis.stride - 1) / axis.stride;
  return {first, std::min(last, axis.output)};
}

// Calls fn(WindowRow) for each tap in row-major order and, within it, for each row of windows that
// it reaches. Positions are row-major in one plane. REQUIRES: 1 to kMaxRank axes. Allocates
// nothing.
template <typename Fn>
void ForEachWindowRow(const std::vector<WindowAxis>& axes, Fn fn) {
  const int rank = static_cast<int>(axes.size());
  const WindowAxis& row = axes[rank - 1];
  int64_t taps = 1;
  int64_t rows = 1;
  for (int i = 0; i < rank; ++i) {
    taps *= axes[i].kernel;
    if (i + 1 < rank) rows *= axes[i].output;
  }
  for (int64_t tap = 0; tap < taps; ++tap) {
    std::array<int64_t, kMaxRank> t{};
    int64_t rest = tap;
    for (int i = rank - 1; i >= 0; --i) {
      t[i] = rest % axes[i].kernel;
      rest /= axes[i].kernel;
    }
    const OutputRange range = OutputsReached(row, t[rank - 1]);
    if (range.first >= range.last) continue;
    for (int64_t r = 0; r < rows; ++r) {
      int64_t outer = r;
      int64_t stride = row.input;
      int64_t input = t[rank - 1] * row.dilation - row.pad_begin;
      bool inside = true;
      for (int i = rank - 2; inside && i >= 0; --i) {
        const int64_t position = axes[i].Start(outer % axes[i].output) + t[i] * axes[i].dilation;
        outer /= axes[i].output;
        inside = position >= 0 && position < axes[i].input;
        input += position * stride;
        stride *= axes[i].input;
      }
      if (!inside) continue;
      fn(WindowRow{tap, r * row.output, input, row.stride, range.first, range.last});
    }
  }
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_WINDOW_ROWS_H_
