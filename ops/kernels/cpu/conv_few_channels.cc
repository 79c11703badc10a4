#include "ops/kernels/cpu/conv_few_channels.h"

#include <algorithm>

#include "ops/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/conv_few_channels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/kernels/cpu/simd_math-inl.h"

#ifndef WEFT_OPS_KERNELS_CPU_CONV_FEW_CHANNELS_BLOCK_
#define WEFT_OPS_KERNELS_CPU_CONV_FEW_CHANNELS_BLOCK_
namespace weft::cpu {

// Output channels summed together: with two vectors each, twelve sums fill the registers of AVX2.
inline constexpr int64_t kOutputBlock = 6;
// The most lanes a vector has (AVX-512), and columns that are computed side by side.
inline constexpr int64_t kMostLanes = 16;
inline constexpr int64_t kMostColumns = 2 * kMostLanes;

}  // namespace weft::cpu
#endif  // WEFT_OPS_KERNELS_CPU_CONV_FEW_CHANNELS_BLOCK_

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// Where a block of outputs comes from and goes to.
struct Block {
  const float* x;     // the padded row that the first window's first row is
  const float* taps;  // packed weights of the block
  const float* bias;  // of the block's first output; may be null
  float* y;           // the row of the block's first output
};

// kOutputs channels of up to kVectors vectors of one output row, from column `column` on.
template <int kOutputs, int kVectors>
HWY_INLINE void SumColumns(const FewChannelConv& conv, const Block& block, int64_t column) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVector sums[kOutputs][kVectors];
  HWY_UNROLL(6)
  for (int m = 0; m < kOutputs; ++m) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) {
      sums[m][v] = hn::Set(d, block.bias == nullptr ? 0.0f : block.bias[m]);
    }
  }
  const int64_t row_stride = conv.padded_columns();
  const float* taps = block.taps;
  for (int64_t c = 0; c < conv.channels; ++c) {
    for (int64_t i = 0; i < conv.kernel_rows; ++i) {
      const float* row = block.x + (c * conv.padded_rows() + i) * row_stride + column;
      for (int64_t j = 0; j < conv.kernel_columns; ++j, taps += kOutputs) {
        FloatVector inputs[kVectors];
        HWY_UNROLL(2)
        for (int v = 0; v < kVectors; ++v) inputs[v] = hn::LoadU(d, row + j + v * lanes);
        HWY_UNROLL(6)
        for (int m = 0; m < kOutputs; ++m) {
          const FloatVector tap = hn::Set(d, taps[m]);
          HWY_UNROLL(2)
          for (int v = 0; v < kVectors; ++v) sums[m][v] = hn::MulAdd(tap, inputs[v], sums[m][v]);
        }
      }
    }
  }
  const int64_t plane = conv.output_rows * conv.output_columns;
  HWY_UNROLL(6)
  for (int m = 0; m < kOutputs; ++m) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = column + v * lanes;
      const int64_t rest = conv.output_columns - at;
      float* to = block.y + m * plane + at;
      if (rest >= lanes) {
        hn::StoreU(sums[m][v], d, to);
      } else if (rest > 0) {
        StorePart(d, sums[m][v], to, static_cast<size_t>(rest));
      }
    }
  }
}

template <int kOutputs>
HWY_INLINE void SumRow(const FewChannelConv& conv, const Block& block) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  int64_t column = 0;
  for (; conv.output_columns - column > lanes; column += 2 * lanes) {
    SumColumns<kOutputs, 2>(conv, block, column);
  }
  if (column < conv.output_columns) SumColumns<kOutputs, 1>(conv, block, column);
}

void SumSample(const FewChannelConv& conv, const float* padded, const float* packed,
               const float* bias, float* y) {
  for (int64_t row = 0; row < conv.output_rows; ++row) {
    for (int64_t m = 0; m < conv.outputs; m += kOutputBlock) {
      const Block block{padded + row * conv.padded_columns(), packed + m * conv.taps(),
                        bias == nullptr ? nullptr : bias + m,
                        y + (m * conv.output_rows + row) * conv.output_columns};
      switch (std::min(kOutputBlock, conv.outputs - m)) {
        case 1:
          SumRow<1>(conv, block);
          break;
        case 2:
          SumRow<2>(conv, block);
          break;
        case 3:
          SumRow<3>(conv, block);
          break;
        case 4:
          SumRow<4>(conv, block);
          break;
        case 5:
          SumRow<5>(conv, block);
          break;
        default:
          SumRow<6>(conv, block);
          break;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
namespace {

HWY_EXPORT(SumSample);

}  // namespace

int64_t FewChannelConv::padded_columns() const {
  const int64_t whole = (output_columns + kMostColumns - 1) / kMostColumns * kMostColumns;
  return whole + kernel_columns - 1;
}

void PackFewChannelWeights(const FewChannelConv& conv, const float* weights, float* packed) {
  const int64_t taps = conv.taps();
  for (int64_t first = 0; first < conv.outputs; first += kOutputBlock) {
    const int64_t count = std::min(kOutputBlock, conv.outputs - first);
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t m = 0; m < count; ++m) *packed++ = weights[(first + m) * taps + tap];
    }
  }
}

void PadFewChannelSample(const FewChannelConv& conv, const float* x, float* padded) {
  const int64_t stride = conv.padded_columns();
  std::fill_n(padded, conv.padded_size(), 0.0f);
  const int64_t rows = std::min(conv.rows, conv.padded_rows() - conv.pad_top);
  const int64_t columns = std::min(conv.columns, stride - conv.pad_left);
  for (int64_t c = 0; c < conv.channels; ++c) {
    for (int64_t i = 0; i < rows; ++i) {
      std::copy_n(x + (c * conv.rows + i) * conv.columns, columns,
                  padded + (c * conv.padded_rows() + conv.pad_top + i) * stride + conv.pad_left);
    }
  }
}

void RunFewChannelConv(const FewChannelConv& conv, const float* padded, const float* packed,
                       const float* bias, float* y) {
  HWY_DYNAMIC_DISPATCH(SumSample)(conv, padded, packed, bias, y);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
