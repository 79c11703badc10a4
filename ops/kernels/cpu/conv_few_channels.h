// Forward convolution of images with few channels, where the sum of one output is so short that
// reordering the images for oneDNN and filling its blocks of channels costs more than the sums: the
// first layer of small networks.
#ifndef WEFT_OPS_KERNELS_CPU_CONV_FEW_CHANNELS_H_
#define WEFT_OPS_KERNELS_CPU_CONV_FEW_CHANNELS_H_

#include <cstdint>

namespace weft::cpu {

// Two image axes, windows one apart and dense, one group.
struct FewChannelConv {
  int64_t channels = 0;  // of the input
  int64_t rows = 0;      // of the input
  int64_t columns = 0;
  int64_t kernel_rows = 0;
  int64_t kernel_columns = 0;
  int64_t pad_top = 0;
  int64_t pad_left = 0;
  int64_t outputs = 0;  // channels of the output
  int64_t output_rows = 0;
  int64_t output_columns = 0;

  int64_t taps() const { return channels * kernel_rows * kernel_columns; }
  int64_t padded_rows() const { return output_rows + kernel_rows - 1; }
  // A row's padded copy, so long that whole vectors can be read from each of its outputs on.
  int64_t padded_columns() const;
  // Floats of one sample's padded copy and of the packed weights.
  int64_t padded_size() const { return channels * padded_rows() * padded_columns(); }
  int64_t packed_size() const { return outputs * taps(); }
};

// Weights [outputs, channels, kernel...] to [block of outputs][tap][output of the block].
void PackFewChannelWeights(const FewChannelConv& conv, const float* weights, float* packed);

// Copies one sample between borders of zeros, to padded_size() floats.
void PadFewChannelSample(const FewChannelConv& conv, const float* x, float* padded);

// One padded sample to y [outputs, output_rows, output_columns]. `bias` may be null. Each output is
// summed in the order of the taps, whatever the vector length.
void RunFewChannelConv(const FewChannelConv& conv, const float* padded, const float* packed,
                       const float* bias, float* y);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_CONV_FEW_CHANNELS_H_
