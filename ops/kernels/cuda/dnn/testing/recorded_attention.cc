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

}  // namespace

int LaunchRecordedAttention(const cuda::AttentionSpec& spec,
                            const cuda::AttentionOperands& operands, void* workspace,
                            size_t workspace_bytes, cuda::LaunchQueue queue) {
  if (spec.dtype == DType::kFloat16) {
    return LaunchOf<Float16>(spec, operands, workspace, workspace_bytes, queue);
  }
  return LaunchOf<Bfloat16>(spec, operands, workspace, workspace_bytes, queue);
}

}  // namespace weft::testing
