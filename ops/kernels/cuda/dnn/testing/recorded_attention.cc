#include "ops/kernels/cuda/dnn/testing/recorded_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/testing/emulator/emulated_launch.h"

namespace weft::testing {
namespace {

constexpr int kAttentionDnnThreads = 64;
constexpr int64_t kMaxAttentionDnnBlocks = 8;
constexpr int kHeadAxes = 4;

struct HeadsLayout {
  int64_t sizes[kHeadAxes];
  int64_t strides[kHeadAxes];

  static HeadsLayout Of(const cuda::DnnTensor& tensor) {
    HeadsLayout layout;
    std::copy_n(tensor.dims.begin(), kHeadAxes, layout.sizes);
    std::copy_n(tensor.strides.begin(), kHeadAxes, layout.strides);
    return layout;
  }
  int64_t At(int64_t sample, int64_t head, int64_t row, int64_t element) const {
    return sample * strides[0] + head * strides[1] + row * strides[2] + element * strides[3];
  }
};

template <typename T>
struct RecordedAttentionBody {
  const T* query;
  const T* key;
  const T* value;
  T* result;
  float* log_sums;  // may be null
  unsigned char* workspace;
  int64_t workspace_bytes;
  HeadsLayout q, k, v, y;
  double scale;
  bool causal;

  template <class Gpu>
  void operator()(Gpu& gpu) const {
    const auto scratch = gpu.Global(workspace);
    for (int64_t i = gpu.index(); i < workspace_bytes; i += gpu.stride()) scratch[i] = 0xa5;
    const int64_t rows = y.sizes[0] * y.sizes[1] * y.sizes[2];
    for (int64_t i = gpu.index(); i < rows; i += gpu.stride()) {
      const int64_t row = i % y.sizes[2];
      Row(gpu, i / y.sizes[2] / y.sizes[1], i / y.sizes[2] % y.sizes[1], row);
    }
  }

 private:
  template <class Gpu>
  double Score(Gpu& gpu, int64_t sample, int64_t head, int64_t row, int64_t column) const {
    const int64_t shared = head / (q.sizes[1] / k.sizes[1]);
    double score = 0;
    for (int64_t e = 0; e < q.sizes[3]; ++e) {
      const T a = gpu.Global(query)[q.At(sample, head, row, e)];
      const T b = gpu.Global(key)[k.At(sample, shared, column, e)];
      score += static_cast<double>(cuda::Widen(a)) * static_cast<double>(cuda::Widen(b));
    }
    return score * scale;
  }

  template <class Gpu>
  void Row(Gpu& gpu, int64_t sample, int64_t head, int64_t row) const {
    const int64_t columns = causal ? std::min(row + 1, k.sizes[2]) : k.sizes[2];
    const int64_t shared = head / (q.sizes[1] / k.sizes[1]);
    double largest = Score(gpu, sample, head, row, 0);
    for (int64_t c = 1; c < columns; ++c) {
      largest = std::max(largest, Score(gpu, sample, head, row, c));
    }
    for (int64_t e = 0; e < y.sizes[3]; ++e) {
      double sum = 0, weighted = 0;
      for (int64_t c = 0; c < columns; ++c) {
        const double power = std::exp(Score(gpu, sample, head, row, c) - largest);
        const T element = gpu.Global(value)[v.At(sample, shared, c, e)];
        sum += power;
        weighted += power * static_cast<double>(cuda::Widen(element));
      }
      gpu.Global(result)[y.At(sample, head, row, e)] =
          cuda::Narrow<T>(static_cast<cuda::Compute<T>>(weighted / sum));
      if (e > 0 || log_sums == nullptr) continue;
      const int64_t at = (sample * y.sizes[1] + head) * y.sizes[2] + row;
      gpu.Global(log_sums)[at] = static_cast<float>(largest + std::log(sum));
    }
  }
};

template <typename T>
int LaunchOf(const cuda::AttentionSpec& spec, const cuda::AttentionOperands& operands,
             void* workspace, size_t workspace_bytes, cuda::LaunchQueue queue) {
  RecordedAttentionBody<T> body;
  body.query = static_cast<const T*>(operands.query);
  body.key = static_cast<const T*>(operands.key);
  body.value = static_cast<const T*>(operands.value);
  body.result = static_cast<T*>(operands.result);
  body.log_sums = operands.log_sums;
  body.workspace = static_cast<unsigned char*>(workspace);
  body.workspace_bytes = static_cast<int64_t>(workspace_bytes);
  body.q = HeadsLayout::Of(spec.query);
  body.k = HeadsLayout::Of(spec.key);
  body.v = HeadsLayout::Of(spec.value);
  body.y = HeadsLayout::Of(spec.result);
  body.scale = spec.scale;
  body.causal = spec.causal;
  const int64_t rows = spec.result.num_elements() / spec.result.dims[3];
  const cuda::LaunchGrid grid = {cuda::Blocks(rows, kAttentionDnnThreads, kMaxAttentionDnnBlocks),
                                 kAttentionDnnThreads};
  return cuda::Launch<kAttentionDnnThreads>(queue, grid, body);
}

// Each row of dquery, and each of dkey and dvalue, by itself.
template <typename T>
struct RecordedGradientBody {
  const T* query;
  const T* key;
  const T* value;
  const T* result;
  const T* dresult;
  const float* log_sums;
  T* dquery;
  T* dkey;
  T* dvalue;
  unsigned char* workspace;
  int64_t workspace_bytes;
  HeadsLayout q, k, v, y;
  double scale;
  bool causal;

  template <class Gpu>
  void operator()(Gpu& gpu) const {
    const auto scratch = gpu.Global(workspace);
    for (int64_t i = gpu.index(); i < workspace_bytes; i += gpu.stride()) scratch[i] = 0xa5;
    const int64_t rows = q.sizes[0] * q.sizes[1] * q.sizes[2];
    for (int64_t i = gpu.index(); i < rows; i += gpu.stride()) {
      QueryRow(gpu, i / q.sizes[2] / q.sizes[1], i / q.sizes[2] % q.sizes[1], i % q.sizes[2]);
    }
    const int64_t columns = k.sizes[0] * k.sizes[1] * k.sizes[2];
    for (int64_t i = gpu.index(); i < columns; i += gpu.stride()) {
      KeyRow(gpu, i / k.sizes[2] / k.sizes[1], i / k.sizes[2] % k.sizes[1], i % k.sizes[2]);
    }
  }

 private:
  template <class Gpu>
  static double Read(Gpu& gpu, const T* from, int64_t at) {
    const T element = gpu.Global(from)[at];
    return static_cast<double>(cuda::Widen(element));
  }
  template <class Gpu>
  static void Write(Gpu& gpu, T* to, int64_t at, double number) {
    gpu.Global(to)[at] = cuda::Narrow<T>(static_cast<cuda::Compute<T>>(number));
  }
  int64_t group() const { return q.sizes[1] / k.sizes[1]; }
  template <class Gpu>
  double Dot(Gpu& gpu, const T* a, int64_t a_at, const T* b, int64_t b_at, int64_t count) const {
    double sum = 0;
    for (int64_t e = 0; e < count; ++e) sum += Read(gpu, a, a_at + e) * Read(gpu, b, b_at + e);
    return sum;
  }
  // The probability of a key in a row, and the slope of its score.
  template <class Gpu>
  double Probability(Gpu& gpu, int64_t b, int64_t h, int64_t row, int64_t column) const {
    if (causal && column > row) return 0;
    const double score = scale * Dot(gpu, query, q.At(b, h, row, 0), key,
                                     k.At(b, h / group(), column, 0), q.sizes[3]);
    const float sum = gpu.Global(log_sums)[(b * q.sizes[1] + h) * q.sizes[2] + row];
    return std::exp(score - static_cast<double>(sum));
  }
  template <class Gpu>
  double Slope(Gpu& gpu, int64_t b, int64_t h, int64_t row, int64_t column) const {
    const int64_t at = y.At(b, h, row, 0);
    const double own = Dot(gpu, dresult, at, value, v.At(b, h / group(), column, 0), v.sizes[3]);
    const double all = Dot(gpu, dresult, at, result, at, v.sizes[3]);
    return scale * Probability(gpu, b, h, row, column) * (own - all);
  }

  template <class Gpu>
  void QueryRow(Gpu& gpu, int64_t b, int64_t h, int64_t row) const {
    for (int64_t e = 0; e < q.sizes[3]; ++e) {
      double sum = 0;
      for (int64_t c = 0; c < k.sizes[2]; ++c) {
        sum += Slope(gpu, b, h, row, c) * Read(gpu, key, k.At(b, h / group(), c, e));
      }
      Write(gpu, dquery, q.At(b, h, row, e), sum);
    }
  }
  template <class Gpu>
  void KeyRow(Gpu& gpu, int64_t b, int64_t shared, int64_t column) const {
    for (int64_t e = 0; e < std::max(k.sizes[3], v.sizes[3]); ++e) {
      double of_key = 0, of_value = 0;
      for (int64_t h = shared * group(); h < (shared + 1) * group(); ++h) {
        for (int64_t row = 0; row < q.sizes[2]; ++row) {
          if (e < k.sizes[3]) {
            of_key += Slope(gpu, b, h, row, column) * Read(gpu, query, q.At(b, h, row, e));
          }
          if (e < v.sizes[3]) {
            of_value +=
                Probability(gpu, b, h, row, column) * Read(gpu, dresult, y.At(b, h, row, e));
          }
        }
      }
      if (e < k.sizes[3]) Write(gpu, dkey, k.At(b, shared, column, e), of_key);
      if (e < v.sizes[3]) Write(gpu, dvalue, v.At(b, shared, column, e), of_value);
    }
  }
};

template <typename T>
int LaunchGradientOf(const cuda::AttentionSpec& spec,
                     const cuda::AttentionGradientOperands& operands, void* workspace,
                     size_t workspace_bytes, cuda::LaunchQueue queue) {
  RecordedGradientBody<T> body;
  body.query = static_cast<const T*>(operands.query);
  body.key = static_cast<const T*>(operands.key);
  body.value = static_cast<const T*>(operands.value);
  body.result = static_cast<const T*>(operands.result);
  body.dresult = static_cast<const T*>(operands.dresult);
  body.log_sums = operands.log_sums;
  body.dquery = static_cast<T*>(operands.dquery);
  body.dkey = static_cast<T*>(operands.dkey);
  body.dvalue = static_cast<T*>(operands.dvalue);
  body.workspace = static_cast<unsigned char*>(workspace);
  body.workspace_bytes = static_cast<int64_t>(workspace_bytes);
  body.q = HeadsLayout::Of(spec.query);
  body.k = HeadsLayout::Of(spec.key);
  body.v = HeadsLayout::Of(spec.value);
  body.y = HeadsLayout::Of(spec.result);
  body.scale = spec.scale;
  body.causal = spec.causal;
  const int64_t rows = spec.query.num_elements() / spec.query.dims[3];
  const cuda::LaunchGrid grid = {cuda::Blocks(rows, kAttentionDnnThreads, kMaxAttentionDnnBlocks),
                                 kAttentionDnnThreads};
  return cuda::Launch<kAttentionDnnThreads>(queue, grid, body);
}

}  // namespace

int LaunchRecordedAttentionGradient(const cuda::AttentionSpec& spec,
                                    const cuda::AttentionGradientOperands& operands,
                                    void* workspace, size_t workspace_bytes,
                                    cuda::LaunchQueue queue) {
  if (spec.dtype == DType::kFloat16) {
    return LaunchGradientOf<Float16>(spec, operands, workspace, workspace_bytes, queue);
  }
  return LaunchGradientOf<Bfloat16>(spec, operands, workspace, workspace_bytes, queue);
}

int LaunchRecordedAttention(const cuda::AttentionSpec& spec,
                            const cuda::AttentionOperands& operands, void* workspace,
                            size_t workspace_bytes, cuda::LaunchQueue queue) {
  if (spec.dtype == DType::kFloat16) {
    return LaunchOf<Float16>(spec, operands, workspace, workspace_bytes, queue);
  }
  return LaunchOf<Bfloat16>(spec, operands, workspace, workspace_bytes, queue);
}

}  // namespace weft::testing
