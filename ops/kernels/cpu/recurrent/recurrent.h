// What RNN, GRU and LSTM share: one product of all inputs with W, then step by step one of the
// states with R and the element-wise cell.
#ifndef WEFT_OPS_KERNELS_CPU_RECURRENT_RECURRENT_H_
#define WEFT_OPS_KERNELS_CPU_RECURRENT_RECURRENT_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/activation.h"
#include "ops/kernels/cpu/blocks/onednn.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "platform/status_macros.h"

namespace weft::cpu {

enum RecurrentInput {
  kRecurrentX,
  kRecurrentW,
  kRecurrentR,
  kRecurrentB,
  kRecurrentLengths,
  kRecurrentInitialH,
  kRecurrentInitialC,
  kRecurrentP,
  kRecurrentInputs
};
inline constexpr int kRecurrentOutputs = 5;

// Sizes, and where rows lie in the operands for both layouts.
struct RecurrentGeometry {
  int64_t time = 0;
  int64_t batch = 0;
  int64_t input = 0;
  int64_t hidden = 0;
  int64_t gate_count = 1;
  int64_t directions = 1;
  bool batch_first = false;

  int64_t gates() const { return gate_count * hidden; }
  int64_t rows() const { return time * batch; }
  int64_t row(int64_t t, int64_t b) const { return batch_first ? b * time + t : t * batch + b; }
  int64_t y_offset(int64_t t, int64_t d, int64_t b) const {
    return (batch_first ? row(t, b) * directions + d : (t * directions + d) * batch + b) * hidden;
  }
  int64_t state_offset(int64_t d, int64_t b) const {
    return (batch_first ? b * directions + d : d * batch + b) * hidden;
  }
};

RecurrentGeometry RecurrentGeometryOf(const PrepareContext& context, int64_t gate_count);

// How B of a product lies in memory: [n, k] or [k, n].
enum class Stored : uint8_t { kTransposed, kPlain };

struct GateProductOptions {
  bool bias = false;
  Stored stored = Stored::kTransposed;
  int threads = 1;
  int64_t constants = 0;  // so many B that never change are packed once; 0: each is packed anew
};

// Y[m, n] = A[m, k] B (+ bias[n]), with B kept in the layout that is computed fastest in. Threads
// share the columns.
template <typename S>
class GateProduct;

template <>
class GateProduct<float> {
 public:
  GateProduct() = default;
  // May throw dnnl::error. Allocates for constants.
  GateProduct(int64_t m, int64_t n, int64_t k, const GateProductOptions& options,
              WorkspaceLayout& layout);
  // Takes `b`, which need not be aligned, for the runs to come: number `which` of the constants.
  absl::Status Pack(const float* b, int64_t which, void* workspace);
  // `bias` null: made without.
  absl::Status Run(const float* a, const float* bias, float* y, void* workspace);
  size_t retained_bytes() const;

 private:
  // Some columns.
  struct Part {
    int64_t first = 0;
    size_t offset = 0;  // of the first in B, in elements
    OnednnReorder reorder;
    OnednnCall call;
    size_t plain_bytes = 0;
    size_t weights = 0;
    size_t scratchpad = 0;
    std::vector<PackedWeights> constants;
    const void* packed = nullptr;  // of this run
    absl::Status status;
  };
  absl::Status AddPart(int64_t first, int64_t columns, int64_t k, const GateProductOptions& options,
                       WorkspaceLayout& layout);
  absl::Status RunPart(Part& part, const float* a, const float* bias, float* y, void* workspace);

  int64_t m_ = 0;
  int64_t n_ = 0;
  int threads_ = 1;
  absl::Status status_;      // of the construction
  std::vector<Part> parts_;  // none: sums of nothing
};

template <>
class GateProduct<double> {
 public:
  GateProduct() = default;
  GateProduct(int64_t m, int64_t n, int64_t k, const GateProductOptions& options, WorkspaceLayout&)
      : m_(m), n_(n), k_(k), stored_(options.stored) {}
  absl::Status Pack(const double* b, int64_t, void*) {
    b_ = b;
    return absl::OkStatus();
  }
  absl::Status Run(const double* a, const double* bias, double* y, void* workspace);
  size_t retained_bytes() const { return 0; }

 private:
  int64_t m_ = 0;
  int64_t n_ = 0;
  int64_t k_ = 0;
  Stored stored_ = Stored::kTransposed;
  const double* b_ = nullptr;  // of this run
};

// InvalidArgument unless every length is in [0, time].
absl::Status CheckSequenceLengths(const std::string& node, const std::string& op,
                                  const int32_t* lengths, int64_t batch, int64_t time);

// Replaces each element by the activation of the element clipped to [-clip, clip] (0: not at all).
template <typename S>
void Activate(const Activation& activation, double clip, S* values, int64_t count);

// Whether gates kept for the gradient are kept activated: their slopes are functions of what they
// became. Else their arguments are kept, before clipping.
inline bool KeepsActivated(const Activation& activation, double clip) {
  return clip <= 0 &&
         (activation.kind == ActivationKind::kSigmoid || activation.kind == ActivationKind::kTanh);
}

// What a gate became, from what was kept of it.
template <typename S>
S ValueOf(const Activation& activation, double clip, S kept) {
  if (KeepsActivated(activation, clip)) return kept;
  const S limit = static_cast<S>(clip);
  return static_cast<S>(activation(clip > 0 ? std::clamp(kept, -limit, limit) : kept));
}

// gradient[i] *= the slope of activation and clip at what was kept of gate i.
template <typename S>
void MultiplyBySlopes(const Activation& activation, double clip, const S* kept, int64_t count,
                      S* gradient);

// Those of a recurrent node. The default may name more than there are (RNN's).
absl::StatusOr<std::vector<Activation>> ActivationsOf(const PrepareContext& context,
                                                      const std::vector<std::string>& fallback,
                                                      int64_t directions);

// The steps of all samples in all directions; a cell derives from it. S: float or double.
template <typename S>
class RecurrentKernel : public Kernel {
 public:
  size_t workspace_bytes() const override { return layout_.total(); }

  size_t retained_bytes() const override { return input_product_.retained_bytes(); }

  absl::Status Run(const KernelContext& context) override {
    if (HasInput(kRecurrentLengths)) {
      WEFT_RETURN_IF_ERROR(CheckSequenceLengths(
          name_, op_, Input<int32_t>(context, kRecurrentLengths), geometry_.batch, geometry_.time));
    }
    for (int64_t d = 0; d < geometry_.directions; ++d) {
      WEFT_RETURN_IF_ERROR(RunDirection(context, d));
    }
    return absl::OkStatus();
  }

 protected:
  // May throw dnnl::error. Outputs from `first_kept` on, [directions, rows, width], are kept for
  // the gradient.
  RecurrentKernel(const PrepareContext& context, const RecurrentGeometry& geometry, int first_kept)
      : geometry_(geometry),
        threads_(OnednnThreads(context)),
        clip_(context.attributes().Float("clip", 0.0f)),
        name_(context.node().name),
        op_(context.node().op) {
    reverse_[0] = context.attributes().String("direction", "forward") == "reverse";
    reverse_[1] = true;
    for (int i = 0; i < kRecurrentInputs; ++i) has_input_[i] = context.HasInput(i);
    for (int i = 0; i < kRecurrentOutputs; ++i) {
      has_output_[i] = context.HasOutput(i);
      if (has_output_[i] && i >= first_kept) kept_width_[i] = context.OutputShape(i).dim(3);
    }
    const RecurrentGeometry& g = geometry_;
    bias_ = Reserve(g.gates());
    from_input_ = Reserve(g.rows() * g.gates());
    h_ = Reserve(g.batch * g.hidden);
    constants_[0] = context.InputIsConstant(kRecurrentW) ? g.directions : 0;
    constants_[1] = context.InputIsConstant(kRecurrentR) ? g.directions : 0;
    if (g.rows() > 0) {
      const GateProductOptions options{
          .bias = true, .threads = threads_, .constants = constants_[0]};
      input_product_ = GateProduct<S>(g.rows(), g.gates(), g.input, options, layout_);
    }
  }

  // The product of the states with `columns` rows of R.
  GateProduct<S> StateProduct(int64_t columns) {
    const GateProductOptions options{.threads = threads_, .constants = constants_[1]};
    return GateProduct<S>(geometry_.batch, columns, geometry_.hidden, options, layout_);
  }

  // What a cell does before the steps of direction d, after its h was set; packs R.
  virtual absl::Status StartDirection(const KernelContext& context, int64_t d) = 0;
  // Step `step` of each sample: computes h from it and what came from the input, and calls Emit.
  virtual absl::Status Step(const KernelContext& context, int64_t d, int64_t step) = 0;
  virtual void EndDirection(const KernelContext&, int64_t) {}
  // The sum of W's and R's biases of the gates [first, gate_count) leaves R's out.
  virtual int64_t GatesWithStateBias() const { return geometry_.gate_count; }

  size_t Reserve(int64_t count) { return layout_.Add(static_cast<size_t>(count) * sizeof(S)); }
  S* Values(const KernelContext& context, size_t offset) const {
    return static_cast<S*>(At(context.workspace, offset));
  }
  S* State(const KernelContext& context) const { return Values(context, h_); }
  bool HasInput(int i) const { return has_input_[i]; }
  bool HasOutput(int i) const { return has_output_[i]; }

  // Time of step `step` of sample b; -1 beyond its end.
  int64_t TimeOf(const KernelContext& context, int64_t d, int64_t b, int64_t step) const {
    const int64_t length = HasInput(kRecurrentLengths)
                               ? Input<int32_t>(context, kRecurrentLengths)[b]
                               : geometry_.time;
    if (step >= length) return -1;
    return reverse_[d] ? length - 1 - step : step;
  }
  // The gates' arguments from input and biases at time t.
  S* FromInput(const KernelContext& context, int64_t t, int64_t b) const {
    return Values(context, from_input_) + geometry_.row(t, b) * geometry_.gates();
  }
  // Where output i keeps what belongs to time t of sample b; null when it is not wanted.
  S* Kept(const KernelContext& context, int i, int64_t d, int64_t t, int64_t b) const {
    if (!HasOutput(i)) return nullptr;
    return Output<S>(context, i) + (d * geometry_.rows() + geometry_.row(t, b)) * kept_width_[i];
  }
  // Writes the state of sample b to Y at time t, or zeros at `step` when it has ended (t is -1).
  void Emit(const KernelContext& context, int64_t d, int64_t b, int64_t step, int64_t t) const {
    const int64_t n = geometry_.hidden;
    for (int i = 0; t < 0 && i < kRecurrentOutputs; ++i) {
      if (kept_width_[i] > 0) std::fill_n(Kept(context, i, d, step, b), kept_width_[i], S(0));
    }
    if (!HasOutput(0)) return;
    S* const y = Output<S>(context, 0) + geometry_.y_offset(t < 0 ? step : t, d, b);
    if (t < 0) {
      std::fill_n(y, n, S(0));
    } else {
      std::copy_n(State(context) + b * n, n, y);
    }
  }

  void LoadState(const KernelContext& context, int input, int64_t d, S* state) const {
    const int64_t n = geometry_.hidden;
    for (int64_t b = 0; b < geometry_.batch; ++b) {
      if (HasInput(input)) {
        std::copy_n(Input<S>(context, input) + geometry_.state_offset(d, b), n, state + b * n);
      } else {
        std::fill_n(state + b * n, n, S(0));
      }
    }
  }
  void StoreState(const KernelContext& context, int output, int64_t d, const S* state) const {
    if (!HasOutput(output)) return;
    const int64_t n = geometry_.hidden;
    for (int64_t b = 0; b < geometry_.batch; ++b) {
      std::copy_n(state + b * n, n, Output<S>(context, output) + geometry_.state_offset(d, b));
    }
  }
  template <typename Fn>
  void ForEachSample(double nanoseconds_per_gate, Fn body) const {
    ParallelFor(threads_, geometry_.batch,
                nanoseconds_per_gate * static_cast<double>(geometry_.gates()), 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t b = begin; b < end; ++b) body(b);
                });
  }

  const RecurrentGeometry geometry_;
  const int threads_;
  const float clip_;
  WorkspaceLayout layout_;

 private:
  absl::Status RunDirection(const KernelContext& context, int64_t d) {
    const RecurrentGeometry& g = geometry_;
    LoadState(context, kRecurrentInitialH, d, State(context));
    if (g.rows() > 0) {
      SumBiases(context, d);
      WEFT_RETURN_IF_ERROR(input_product_.Pack(
          Input<S>(context, kRecurrentW) + d * g.gates() * g.input, d, context.workspace));
      WEFT_RETURN_IF_ERROR(input_product_.Run(Input<S>(context, kRecurrentX),
                                              Values(context, bias_), Values(context, from_input_),
                                              context.workspace));
    }
    WEFT_RETURN_IF_ERROR(StartDirection(context, d));
    for (int64_t step = 0; g.batch > 0 && step < g.time; ++step) {
      WEFT_RETURN_IF_ERROR(Step(context, d, step));
    }
    StoreState(context, 1, d, State(context));
    EndDirection(context, d);
    return absl::OkStatus();
  }

  void SumBiases(const KernelContext& context, int64_t d) const {
    const int64_t n = geometry_.gates();
    S* const sum = Values(context, bias_);
    std::fill_n(sum, n, S(0));
    if (!HasInput(kRecurrentB)) return;
    const S* b = Input<S>(context, kRecurrentB) + 2 * d * n;
    const int64_t both = GatesWithStateBias() * geometry_.hidden;
    for (int64_t i = 0; i < n; ++i) sum[i] = i < both ? b[i] + b[n + i] : b[i];
  }

  const std::string name_;
  const std::string op_;
  int64_t constants_[2] = {};  // W's and R's directions, where they never change
  bool reverse_[2];
  bool has_input_[kRecurrentInputs];
  bool has_output_[kRecurrentOutputs];
  int64_t kept_width_[kRecurrentOutputs] = {};
  size_t bias_ = 0;
  size_t from_input_ = 0;
  size_t h_ = 0;
  GateProduct<S> input_product_;
};

// Calls make(float{}) or make(double{}) for the type of R, which every recurrent op and gradient
// has. `make` returns StatusOr<unique_ptr<Kernel>> and may throw dnnl::error.
template <typename Fn>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareRecurrent(const PrepareContext& context, int r,
                                                         Fn make) {
  return PrepareByDType(context, context.InputDType(r), TypeList<float, double>{}, [&](auto zero) {
    return CatchOnednn(context, [&] { return make(zero); });
  });
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_RECURRENT_RECURRENT_H_
