// Dnn: what our kernels ask of cuDNN. The library itself is in
// ops/kernels/cuda/dnn/cudnn_library.h; tests have one that computes on the emulated GPU
// (testing/).
#ifndef WEFT_OPS_KERNELS_CUDA_DNN_DNN_H_
#define WEFT_OPS_KERNELS_CUDA_DNN_DNN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// How an operand lies in memory; strides are in elements. A value.
struct DnnTensor {
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;

  // Row-major, without gaps.
  static DnnTensor Dense(std::vector<int64_t> dims);
  // [rows, columns, 1, 1] without gaps, with the strides of images whose channels are last: so are
  // rows described that are normalized.
  static DnnTensor Rows(int64_t rows, int64_t columns);
  int64_t num_elements() const;
  // Elements from the first to behind the last. REQUIRES: it has elements.
  int64_t span() const;
};

// Which of the three operands of a convolution is computed from the other two.
enum class ConvolutionResult : uint8_t {
  kSmallImage,  // Conv
  kLargeImage,  // the gradient of its input, and ConvTranspose
  kWeights,     // the gradient of its weights
};

// A convolution from a large image [samples, groups * large channels, sizes...] to a small one
// [samples, groups * small channels, sizes...] by weights [groups * small channels, large channels,
// taps...]: small[o] = sum over taps t of weights[t] * large[o * stride - pad + t * dilation].
struct ConvolutionSpec {
  ConvolutionResult result = ConvolutionResult::kSmallImage;
  DType dtype = DType::kFloat32;  // of all operands: float32, float16, bfloat16; sums are float32
  // float32 operands may be rounded to TF32 (10 bits of mantissa).
  bool tf32 = false;
  DnnTensor large, weights, small;  // two or three image axes
  int64_t groups = 1;
  // One for each image axis. The same number of zeros is before and behind the large image.
  std::vector<int64_t> pads, strides, dilations;
  // Added to each channel of the image that is computed. Not with `adds`, nor for weights.
  bool has_bias = false;
  // Adds to what the result holds; else that is not read.
  bool adds = false;

  const DnnTensor& computed() const;
  std::string ToString() const;  // "float16 Conv [2,3,9,9] * [4,3,3,3] = [2,4,7,7]"
};

// Internal with the field that no convolution can have. Every element of the small image belongs to
// the sizes of the large one: small = (large + 2 pad - (taps - 1) dilation - 1) / stride + 1.
absl::Status CheckConvolution(const ConvolutionSpec& spec);

// Addresses on the device, multiples of kDnnAlignment. The one that is computed is written.
struct ConvolutionOperands {
  void* large = nullptr;
  void* weights = nullptr;
  void* small = nullptr;
  const void* bias = nullptr;  // null without has_bias
};

inline constexpr size_t kDnnAlignment = 16;
inline constexpr size_t kDnnWorkspaceAlignment = 256;

// Work whose algorithm is chosen. Used by one thread at a time.
template <typename Operands>
class PreparedDnnWork {
 public:
  virtual ~PreparedDnnWork() = default;
  // Memory of the device that Run wants, aligned to kDnnWorkspaceAlignment.
  virtual size_t workspace_bytes() const = 0;
  // Puts the work behind what is on the queue; does not wait. The same operands give the same bits.
  // Internal with the library's code.
  virtual absl::Status Run(const Operands& operands, void* workspace, LaunchQueue queue) = 0;
};
using PreparedConvolution = PreparedDnnWork<ConvolutionOperands>;

// Attention: result = softmax(scale query key^T) value, for each head by itself. Operands are
// [samples, heads, rows, size], with the elements of a row next to each other. Neighbouring heads
// of the query share a head of key and value, where it has more. Scores and their softmax are
// float32; probabilities are rounded to the operands' type.
struct AttentionSpec {
  DType dtype = DType::kBfloat16;  // of all operands: float16, bfloat16
  DnnTensor query, key;            // of one size
  DnnTensor value, result;         // of one size
  double scale = 1;
  bool causal = false;  // row i of the query attends the rows 0 to i of the key

  std::string ToString() const;  // "bfloat16 attention of [2,4,7,8] to [2,2,9,8], causal"
};

// Internal with the field that no attention can have. Unimplemented for what cuDNN has no engine
// for: other types, sizes that are not multiples of 8.
absl::Status CheckAttention(const AttentionSpec& spec);

// Addresses on the device, multiples of kDnnAlignment. The result is written.
struct AttentionOperands {
  const void* query = nullptr;
  const void* key = nullptr;
  const void* value = nullptr;
  void* result = nullptr;
  // [samples, heads, rows] without gaps: the logarithm of the sum of powers of the scores of each
  // row. Null where nobody wants it.
  float* log_sums = nullptr;
};
using PreparedAttention = PreparedDnnWork<AttentionOperands>;

// Which elements share a mean and a variance.
enum class NormalizationKind : uint8_t {
  kBatch,  // those of a channel, in all samples
  kLayer,  // those of a row
  kRms,    // those of a row, whose mean counts as zero
};

// A normalization by the statistics of its operands, or its gradient. With the mean of a group
// (zero for kRms), inverse = 1 / sqrt(variance + epsilon) and n = (x - mean) inverse:
//   y = scale n + bias
//   dscale = sum(dy n), dbias = sum(dy), each over the elements with this scale
//   dx = inverse (g - mean(g) - n mean(g n)), where g = scale dy; for kRms without mean(g)
// Ioffe and Szegedy, Batch Normalization (2015); Ba et al., Layer Normalization (2016); Zhang and
// Sennrich, Root Mean Square Layer Normalization (2019). Variances are those of the population.
struct NormalizationSpec {
  NormalizationKind kind = NormalizationKind::kLayer;
  bool is_gradient = false;
  DType dtype = DType::kFloat32;  // of x, y, dy, dx: float32, float16, bfloat16
  // Of scale, bias and their gradients: float32, or that of x where rows are normalized. Statistics
  // are float32.
  DType parameter_dtype = DType::kFloat32;
  // x, y, dy and dx: batches are [samples, channels, height, width], rows [rows, columns, 1, 1].
  DnnTensor x;
  double epsilon = 1e-5;  // not read by gradients

  // All but kRms: those have no mean, bias and dbias.
  bool has_mean() const { return kind != NormalizationKind::kRms; }
  // [1, channels, 1, 1]: a scale for each channel, or column.
  DnnTensor parameters() const;
  // [1, channels, 1, 1] or [rows, 1, 1, 1]: a mean for each channel, or row.
  DnnTensor statistics() const;
  std::string ToString() const;  // "float32 batch normalization of [2,3,7,7]"
};

// Internal with the field that no normalization can have. Unimplemented for what cuDNN is not asked
// for: 2^31 elements and more.
absl::Status CheckNormalization(const NormalizationSpec& spec);

// Addresses on the device, multiples of kDnnAlignment.
struct NormalizationOperands {
  const void* x = nullptr;
  const void* scale = nullptr;
  const void* bias = nullptr;  // null for gradients and kRms
  const void* dy = nullptr;    // of gradients alone
  // Written by normalizations, read by gradients. The mean is null for kRms.
  float* mean = nullptr;
  float* inverse = nullptr;
  void* result = nullptr;  // y, or dx
  void* dscale = nullptr;  // of gradients alone
  void* dbias = nullptr;   // the same; null for kRms
};
using PreparedNormalization = PreparedDnnWork<NormalizationOperands>;

// The gradient of attention, by its result and the logarithms of its sums L. With the scores
// S = scale query key^T, the probabilities P = exp(S - L), and D = rowsum(dresult result):
//   dvalue = P^T dresult, dS = P (dresult value^T - D), dquery = scale dS key,
//   dkey = scale dS^T query
// A head of key and value that is shared gets the sum over its heads of the query. Dao,
// FlashAttention-2 (2023), section 3.1.
struct AttentionGradientOperands {
  const void* query = nullptr;
  const void* key = nullptr;
  const void* value = nullptr;
  const void* result = nullptr;
  const float* log_sums = nullptr;  // as in AttentionOperands
  const void* dresult = nullptr;    // lies as the result
  // Written; each lies as what it is the gradient of.
  void* dquery = nullptr;
  void* dkey = nullptr;
  void* dvalue = nullptr;
};
using PreparedAttentionGradient = PreparedDnnWork<AttentionGradientOperands>;

// A piece of a kernel's workspace, which is aligned to less than cuDNN's, wants so many bytes...
inline size_t DnnWorkspaceRoom(size_t bytes) {
  return bytes == 0 ? 0 : bytes + kDnnWorkspaceAlignment;
}
// ... and the library's begins here. Null where it wants none.
inline void* DnnWorkspaceIn(void* room, size_t bytes) {
  if (bytes == 0) return nullptr;
  const size_t over = reinterpret_cast<uintptr_t>(room) % kDnnWorkspaceAlignment;
  return static_cast<char*>(room) + (over == 0 ? 0 : kDnnWorkspaceAlignment - over);
}

// The library on one device. Thread-safe. Outlives what it prepares.
class Dnn {
 public:
  virtual ~Dnn() = default;
  // Unimplemented when the library has no algorithm for it that gives the same bits each time, in
  // the precision that was asked for.
  virtual absl::StatusOr<std::unique_ptr<PreparedConvolution>> Prepare(
      const ConvolutionSpec& spec) = 0;
  virtual absl::StatusOr<std::unique_ptr<PreparedAttention>> PrepareAttention(
      const AttentionSpec& spec) = 0;
  virtual absl::StatusOr<std::unique_ptr<PreparedAttentionGradient>> PrepareAttentionGradient(
      const AttentionSpec& spec) = 0;
  virtual absl::StatusOr<std::unique_ptr<PreparedNormalization>> PrepareNormalization(
      const NormalizationSpec& spec) = 0;
};

// Gives the library of a device, or why there is none.
using DnnProvider = absl::StatusOr<Dnn*> (*)(Device& device);

// Where factories find it. FailedPrecondition when this program has no cuDNN; else the provider's
// error, with what was found and what is needed. Thread-safe.
absl::StatusOr<Dnn*> DnnOf(Device& device);
// The provider and the library of the tests say it before main. The last one counts.
bool SetDnnProvider(DnnProvider provider);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_DNN_DNN_H_
