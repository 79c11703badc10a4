// Reference kernels of Attention, RotaryEmbedding and LinearAttention.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// An operand seen as [batch, heads, length, size], whether it is packed or not.
struct Heads {
  const ReferenceOperand* operand;
  int64_t heads, length, size;

  Heads(const ReferenceOperand& of, int64_t packed_heads) : operand(&of) {
    const bool packed = of.shape.rank() == 3;
    heads = packed ? packed_heads : of.shape.dim(1);
    length = of.shape.dim(packed ? 1 : 2);
    size = packed ? of.shape.dim(2) / packed_heads : of.shape.dim(3);
  }
  int64_t Offset(int64_t b, int64_t h, int64_t s, int64_t e) const {
    const bool packed = operand->shape.rank() == 3;
    return (packed ? (b * length + s) * heads + h : (b * heads + h) * length + s) * size + e;
  }
  double At(int64_t b, int64_t h, int64_t s, int64_t e) const {
    return (*operand)[Offset(b, h, s, e)];
  }
};

class AttentionReference {
 public:
  explicit AttentionReference(ReferenceCall& call)
      : call_(call),
        q_(call.input(0), call.attributes().Int("q_num_heads", 1)),
        k_(call.input(1), call.attributes().Int("kv_num_heads", 1)),
        v_(call.input(2), call.attributes().Int("kv_num_heads", 1)),
        past_(call.has_input(4) ? call.input(4).shape.dim(2) : 0),
        total_(past_ + k_.length) {}

  void Run() {
    for (int64_t b = 0; b < call_.input(0).shape.dim(0); ++b) {
      for (int64_t h = 0; h < k_.heads; ++h) Present(b, h);
      for (int64_t h = 0; h < q_.heads; ++h) {
        for (int64_t i = 0; i < q_.length; ++i) Query(b, h, i);
      }
    }
  }

 private:
  double Cached(const Heads& now, int past_input, int64_t b, int64_t h, int64_t s,
                int64_t e) const {
    if (s >= past_) return now.At(b, h, s - past_, e);
    return call_.input(past_input)[((b * now.heads + h) * past_ + s) * now.size + e];
  }

  void Present(int64_t b, int64_t h) {
    for (const int o : {1, 2}) {
      if (!call_.has_output(o)) continue;
      const Heads& now = o == 1 ? k_ : v_;
      for (int64_t s = 0; s < total_; ++s) {
        for (int64_t e = 0; e < now.size; ++e) {
          call_.output(o)[((b * now.heads + h) * total_ + s) * now.size + e] =
              Cached(now, o + 3, b, h, s, e);
        }
      }
    }
  }

  double Bias(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const Attributes& attributes = call_.attributes();
    const double length = call_.has_input(6) ? call_.input(6)[b] : static_cast<double>(total_);
    int64_t position = i + past_;
    if (call_.has_input(6)) position = i + static_cast<int64_t>(length) - q_.length;
    const int64_t left = attributes.Int("left_window_size", -1);
    const int64_t right = attributes.Int("right_window_size", -1);
    if (static_cast<double>(j) >= length) return kNever;
    if (attributes.Int("is_causal", 0) != 0 && j > position) return kNever;
    if (left >= 0 && j < position - left) return kNever;
    if (right >= 0 && j > position + right) return kNever;
    if (!call_.has_input(3)) return 0;
    const ReferenceOperand& mask = call_.input(3);
    const int64_t at[] = {b, h, i, j};
    int64_t offset = 0;
    for (int d = 0; d < mask.shape.rank(); ++d) {
      const int64_t index = mask.shape.dim(d) == 1 ? 0 : at[4 - mask.shape.rank() + d];
      if (index >= mask.shape.dim(d)) return kNever;
      offset = offset * mask.shape.dim(d) + index;
    }
    if (mask.dtype == DType::kBool) return mask[offset] != 0 ? 0 : kNever;
    return mask[offset];
  }

  void Query(int64_t b, int64_t h, int64_t i) {
    const Attributes& attributes = call_.attributes();
    const int64_t shared = h / (q_.heads / k_.heads);
    const double scale = attributes.Has("scale") ? attributes.Float("scale", 1)
                                                 : 1 / std::sqrt(static_cast<double>(q_.size));
    const double cap = attributes.Float("softcap", 0);
    std::vector<double> stages[4];
    double largest = kNever;
    for (int64_t j = 0; j < total_; ++j) {
      double score = 0;
      for (int64_t e = 0; e < q_.size; ++e) {
        score += scale * q_.At(b, h, i, e) * Cached(k_, 4, b, shared, j, e);
      }
      stages[0].push_back(score);
      stages[1].push_back(cap > 0 ? cap * std::tanh(score / cap) : score);
      stages[2].push_back(stages[1].back() + Bias(b, h, i, j));
      // NaN passes: no number is larger.
      if (stages[2].back() > largest || std::isnan(stages[2].back())) largest = stages[2].back();
    }
    double sum = 0;
    for (const double biased : stages[2]) {
      stages[3].push_back(largest == kNever ? 0 : std::exp(biased - largest));
      sum += stages[3].back();
    }
    for (double& p : stages[3]) p = sum == 0 ? 0 : p / sum;
    const int64_t row = (b * q_.heads + h) * q_.length + i;
    for (int64_t j = 0; j < total_ && call_.has_output(3); ++j) {
      call_.output(3)[row * total_ + j] = stages[attributes.Int("qk_matmul_output_mode", 0)][j];
    }
    const bool packed = call_.input(0).shape.rank() == 3;
    const int64_t out = packed ? (b * q_.length + i) * q_.heads + h : row;
    for (int64_t e = 0; e < v_.size; ++e) {
      double y = 0;
      for (int64_t j = 0; j < total_; ++j) y += stages[3][j] * Cached(v_, 5, b, shared, j, e);
      call_.output(0)[out * v_.size + e] = y;
    }
  }

  ReferenceCall& call_;
  const Heads q_, k_, v_;
  const int64_t past_;
  const int64_t total_;
};

WEFT_REGISTER_REFERENCE_KERNEL("", "Attention", ReferenceKernel([](ReferenceCall& call) {
                                 AttentionReference(call).Run();
                                 return absl::OkStatus();
                               }));

absl::Status RotaryEmbedding(ReferenceCall& call) {
  const Attributes& attributes = call.attributes();
  const Heads x(call.input(0), attributes.Int("num_heads", 1));
  const int64_t attribute = attributes.Int("rotary_embedding_dim", 0);
  const int64_t turned = attribute == 0 ? x.size : attribute;
  const bool interleaved = attributes.Int("interleaved", 0) != 0;
  call.output(0).values = call.input(0).values;
  for (int64_t b = 0; b < call.input(0).shape.dim(0); ++b) {
    for (int64_t h = 0; h < x.heads; ++h) {
      for (int64_t s = 0; s < x.length; ++s) {
        const int64_t sample = b * x.length + s;
        const int64_t angle =
            call.has_input(3) ? static_cast<int64_t>(call.input(3)[sample]) : sample;
        for (int64_t i = 0; i < turned / 2; ++i) {
          const int64_t real = interleaved ? 2 * i : i;
          const int64_t imaginary = interleaved ? 2 * i + 1 : i + turned / 2;
          const double c = call.input(1)[angle * (turned / 2) + i];
          const double d = call.input(2)[angle * (turned / 2) + i];
          const double p = x.At(b, h, s, real);
          const double q = x.At(b, h, s, imaginary);
          call.output(0)[x.Offset(b, h, s, real)] = c * p - d * q;
          call.output(0)[x.Offset(b, h, s, imaginary)] = d * p + c * q;
        }
      }
    }
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("", "RotaryEmbedding", ReferenceKernel(RotaryEmbedding));

// S = exp(g) S; v' = v or beta (v - S^T k); S += k v'; o = scale S^T q.
absl::Status LinearAttention(ReferenceCall& call) {
  const Attributes& attributes = call.attributes();
  const int64_t q_heads = attributes.Int("q_num_heads", 1);
  const int64_t kv_heads = attributes.Int("kv_num_heads", 1);
  const Heads q(call.input(0), q_heads), k(call.input(1), kv_heads), v(call.input(2), kv_heads);
  const double given = attributes.Float("scale", 0);
  const double scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(k.size));
  for (int64_t b = 0; b < call.input(0).shape.dim(0); ++b) {
    for (int64_t head = 0; head < q_heads; ++head) {
      const int64_t h = head / (q_heads / kv_heads);
      const int64_t first = (b * kv_heads + h) * k.size * v.size;
      std::vector<double> state(k.size * v.size);
      for (size_t i = 0; i < state.size() && call.has_input(3); ++i) {
        state[i] = call.input(3)[first + static_cast<int64_t>(i)];
      }
      for (int64_t t = 0; t < k.length; ++t) {
        for (int64_t i = 0; i < k.size * v.size && call.has_input(4); ++i) {
          const Heads g(call.input(4), kv_heads);
          state[i] *= std::exp(g.At(b, h, t, g.size == 1 ? 0 : i / v.size));
        }
        std::vector<double> update(v.size);
        for (int64_t m = 0; m < v.size; ++m) {
          update[m] = v.At(b, h, t, m);
          if (!call.has_input(5)) continue;
          for (int64_t d = 0; d < k.size; ++d) {
            update[m] -= state[d * v.size + m] * k.At(b, h, t, d);
          }
          const int64_t betas = call.input(5).shape.dim(2);
          update[m] *= call.input(5)[(b * k.length + t) * betas + (betas == 1 ? 0 : h)];
        }
        for (int64_t m = 0; m < v.size; ++m) {
          double y = 0;
          for (int64_t d = 0; d < k.size; ++d) {
            state[d * v.size + m] += k.At(b, h, t, d) * update[m];
            y += q.At(b, head, t, d) * state[d * v.size + m];
          }
          call.output(0)[((b * k.length + t) * q_heads + head) * v.size + m] = scale * y;
        }
      }
      for (size_t i = 0; i < state.size() && call.has_output(1); ++i) {
        call.output(1)[first + static_cast<int64_t>(i)] = state[i];
      }
    }
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("", "LinearAttention", ReferenceKernel(LinearAttention));

}  // namespace
}  // namespace weft::cpu
