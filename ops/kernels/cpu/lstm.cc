// LSTM, float32: one product of all inputs with W, then per step one of the states with R and the
// element-wise cell.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/activation.h"
#include "ops/kernels/cpu/lstm_cell.h"
#include "ops/kernels/cpu/onednn.h"
#include "ops/kernels/cpu/operand.h"
#include "ops/kernels/cpu/parallel.h"
#include "ops/kernels/cpu/workspace.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

enum Inputs { kX, kW, kR, kB, kSequenceLens, kInitialH, kInitialC, kP };

// Sizes, and where rows lie in the operands for both layouts.
struct Geometry {
  int64_t time = 0;
  int64_t batch = 0;
  int64_t input = 0;
  int64_t hidden = 0;
  int64_t directions = 1;
  bool batch_first = false;

  int64_t gates() const { return 4 * hidden; }
  int64_t rows() const { return time * batch; }
  int64_t row(int64_t t, int64_t b) const { return batch_first ? b * time + t : t * batch + b; }
  int64_t y_offset(int64_t t, int64_t d, int64_t b) const {
    return (batch_first ? row(t, b) * directions + d : (t * directions + d) * batch + b) * hidden;
  }
  int64_t state_offset(int64_t d, int64_t b) const {
    return (batch_first ? b * directions + d : d * batch + b) * hidden;
  }
};

// Y[m, n] = A[m, k] B[n, k]^T (+ bias[n]), with B kept in the layout that oneDNN computes fastest
// in.
class PackedProduct {
 public:
  PackedProduct() = default;
  // May throw dnnl::error.
  PackedProduct(int64_t m, int64_t n, int64_t k, bool bias, WorkspaceLayout& layout)
      : plain_({n, k}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab) {
    const auto f32 = dnnl::memory::data_type::f32;
    using Desc = dnnl::memory::desc;
    const Desc a = PlainDesc(Shape{m, k});
    const Desc b({k, n}, f32, dnnl::memory::format_tag::any);
    const Desc y = PlainDesc(Shape{m, n});
    const Desc bias_desc = PlainDesc(Shape{1, n});
    const dnnl::matmul::primitive_desc primitive(
        bias ? dnnl::matmul::desc(a, b, bias_desc, y) : dnnl::matmul::desc(a, b, y),
        UserScratchpad(), OnednnEngine());
    const Desc packed = primitive.weights_desc();
    const Desc stored({k, n}, f32, dnnl::memory::format_tag::ba);
    reorder_ = OnednnReorder(stored, packed);
    weights_ = layout.Add(std::max(packed.get_size(), stored.get_size()));
    scratchpad_ = layout.Add(primitive.scratchpad_desc().get_size());
    std::vector<OnednnCall::Argument> arguments = {
        {DNNL_ARG_SRC, a},
        {DNNL_ARG_WEIGHTS, packed},
        {DNNL_ARG_DST, y},
        {DNNL_ARG_SCRATCHPAD, primitive.scratchpad_desc()}};
    if (bias) arguments.push_back({DNNL_ARG_BIAS, bias_desc});
    call_ = OnednnCall(dnnl::matmul(primitive), arguments);
  }

  // Copies B, which need not be aligned, into the workspace.
  absl::Status Pack(const float* b, void* workspace) {
    void* const weights = At(workspace, weights_);
    if (reorder_.needed()) return reorder_.Run(b, weights);
    std::memcpy(weights, b, plain_.get_size());
    return absl::OkStatus();
  }

  // `bias` null: made without.
  absl::Status Run(const float* a, const float* bias, float* y, void* workspace) {
    const void* const weights = At(workspace, weights_);
    const void* const scratchpad = At(workspace, scratchpad_);
    if (bias == nullptr) return call_.Run({a, weights, y, scratchpad});
    return call_.Run({a, weights, y, scratchpad, bias});
  }

 private:
  dnnl::memory::desc plain_;
  OnednnReorder reorder_;
  OnednnCall call_;
  size_t weights_ = 0;
  size_t scratchpad_ = 0;
};

class LstmKernel final : public Kernel {
 public:
  // May throw dnnl::error. `activations`: three per direction.
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context,
                                                        const Geometry& geometry,
                                                        std::vector<Activation> activations) {
    auto kernel = std::make_unique<LstmKernel>(context, geometry, std::move(activations));
    kernel->Prepare();
    return kernel;
  }

  LstmKernel(const PrepareContext& context, const Geometry& geometry,
             std::vector<Activation> activations)
      : geometry_(geometry),
        activations_(std::move(activations)),
        name_(context.node().name),
        threads_(OnednnThreads(context)) {
    const Attributes& attributes = context.attributes();
    clip_ = attributes.Float("clip", 0.0f);
    couple_ = attributes.Int("input_forget", 0) != 0;
    const std::string direction = attributes.String("direction", "forward");
    reverse_[0] = direction == "reverse";
    reverse_[1] = true;
    for (int i = 0; i <= kP; ++i) has_input_[i] = context.HasInput(i);
    for (int i = 0; i < 3; ++i) has_output_[i] = context.HasOutput(i);
  }

  size_t workspace_bytes() const override { return layout_.total(); }

  absl::Status Run(const KernelContext& context) override {
    const ThreadBudget budget(threads_);
    WEFT_RETURN_IF_ERROR(CheckLengths(context));
    for (int64_t d = 0; d < geometry_.directions; ++d) {
      WEFT_RETURN_IF_ERROR(RunDirection(context, d));
    }
    return absl::OkStatus();
  }

 private:
  void Prepare() {
    const ThreadBudget budget(threads_);
    const Geometry& g = geometry_;
    const auto floats = [&](int64_t count) { return layout_.Add(count * sizeof(float)); };
    bias_ = floats(g.gates());
    from_input_ = floats(g.rows() * g.gates());
    from_state_ = floats(g.batch * g.gates());
    h_ = floats(g.batch * g.hidden);
    c_ = floats(g.batch * g.hidden);
    if (g.rows() == 0) return;
    input_product_ = PackedProduct(g.rows(), g.gates(), g.input, true, layout_);
    state_product_ = PackedProduct(g.batch, g.gates(), g.hidden, false, layout_);
  }

  float* Floats(const KernelContext& context, size_t offset) const {
    return static_cast<float*>(At(context.workspace, offset));
  }
  // Steps of sample b.
  int64_t Length(const KernelContext& context, int64_t b) const {
    return has_input_[kSequenceLens] ? Input<int32_t>(context, kSequenceLens)[b] : geometry_.time;
  }

  absl::Status CheckLengths(const KernelContext& context) const {
    for (int64_t b = 0; b < geometry_.batch; ++b) {
      const int64_t length = Length(context, b);
      if (length >= 0 && length <= geometry_.time) continue;
      return absl::InvalidArgumentError(absl::StrCat("node '", name_, "' (LSTM): sequence_lens[", b,
                                                     "] is ", length, ", X has ", geometry_.time,
                                                     " steps"));
    }
    return absl::OkStatus();
  }

  absl::Status RunDirection(const KernelContext& context, int64_t d) {
    const Geometry& g = geometry_;
    float* const h = Floats(context, h_);
    float* const c = Floats(context, c_);
    StartState(context, kInitialH, d, h);
    StartState(context, kInitialC, d, c);
    if (g.rows() > 0) {
      SumBiases(context, d);
      WEFT_RETURN_IF_ERROR(input_product_.Pack(Input<float>(context, kW) + d * g.gates() * g.input,
                                               context.workspace));
      WEFT_RETURN_IF_ERROR(state_product_.Pack(Input<float>(context, kR) + d * g.gates() * g.hidden,
                                               context.workspace));
      WEFT_RETURN_IF_ERROR(input_product_.Run(Input<float>(context, kX), Floats(context, bias_),
                                              Floats(context, from_input_), context.workspace));
    }
    const LstmCell cell = CellOf(context, d);
    for (int64_t step = 0; g.batch > 0 && step < g.time; ++step) {
      WEFT_RETURN_IF_ERROR(
          state_product_.Run(h, nullptr, Floats(context, from_state_), context.workspace));
      StepAll(context, cell, d, step);
    }
    if (has_output_[1]) EndState(context, 1, d, h);
    if (has_output_[2]) EndState(context, 2, d, c);
    return absl::OkStatus();
  }

  LstmCell CellOf(const KernelContext& context, int64_t d) const {
    LstmCell cell;
    cell.hidden = geometry_.hidden;
    cell.gate = activations_[3 * d];
    cell.candidate = activations_[3 * d + 1];
    cell.output = activations_[3 * d + 2];
    cell.clip = clip_;
    cell.couple = couple_;
    if (has_input_[kP]) cell.peepholes = Input<float>(context, kP) + 3 * d * geometry_.hidden;
    return cell;
  }

  // W's and R's biases are added to the same sums.
  void SumBiases(const KernelContext& context, int64_t d) const {
    const int64_t n = geometry_.gates();
    float* const sum = Floats(context, bias_);
    std::fill_n(sum, n, 0.0f);
    if (!has_input_[kB]) return;
    const float* b = Input<float>(context, kB) + 2 * d * n;
    for (int64_t i = 0; i < n; ++i) sum[i] = b[i] + b[n + i];
  }

  void StartState(const KernelContext& context, int input, int64_t d, float* state) const {
    const int64_t n = geometry_.hidden;
    for (int64_t b = 0; b < geometry_.batch; ++b) {
      if (has_input_[input]) {
        std::copy_n(Input<float>(context, input) + geometry_.state_offset(d, b), n, state + b * n);
      } else {
        std::fill_n(state + b * n, n, 0.0f);
      }
    }
  }

  void EndState(const KernelContext& context, int output, int64_t d, const float* state) const {
    const int64_t n = geometry_.hidden;
    for (int64_t b = 0; b < geometry_.batch; ++b) {
      std::copy_n(state + b * n, n, Output<float>(context, output) + geometry_.state_offset(d, b));
    }
  }

  // Step `step` of each sample: time `step`, or counted from its last one.
  void StepAll(const KernelContext& context, const LstmCell& cell, int64_t d, int64_t step) const {
    const Geometry& g = geometry_;
    const double nanoseconds = 2.0 * static_cast<double>(g.gates());
    ParallelFor(threads_, g.batch, nanoseconds, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t length = Length(context, b);
        float* const h = Floats(context, h_) + b * g.hidden;
        if (step >= length) {  // beyond the sample's end: the state stays
          if (has_output_[0]) {
            std::fill_n(Output<float>(context, 0) + g.y_offset(step, d, b), g.hidden, 0.0f);
          }
          continue;
        }
        const int64_t t = reverse_[d] ? length - 1 - step : step;
        StepLstm(cell, Floats(context, from_input_) + g.row(t, b) * g.gates(),
                 Floats(context, from_state_) + b * g.gates(), Floats(context, c_) + b * g.hidden,
                 h);
        if (has_output_[0]) {
          std::copy_n(h, g.hidden, Output<float>(context, 0) + g.y_offset(t, d, b));
        }
      }
    });
  }

  const Geometry geometry_;
  const std::vector<Activation> activations_;
  const std::string name_;
  const int threads_;
  float clip_;
  bool couple_;
  bool reverse_[2];
  bool has_input_[kP + 1];
  bool has_output_[3];
  WorkspaceLayout layout_;
  size_t bias_ = 0;
  size_t from_input_ = 0;
  size_t from_state_ = 0;
  size_t h_ = 0;
  size_t c_ = 0;
  PackedProduct input_product_;
  PackedProduct state_product_;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLstm(const PrepareContext& context) {
  if (context.InputDType(kX) != DType::kFloat32) {
    return context.Unimplemented("LSTM is computed in float32 only");
  }
  const Shape& x = context.InputShape(kX);
  const Shape& r = context.InputShape(kR);
  Geometry geometry;
  geometry.batch_first = context.attributes().Int("layout", 0) == 1;
  geometry.time = x.dim(geometry.batch_first ? 1 : 0);
  geometry.batch = x.dim(geometry.batch_first ? 0 : 1);
  geometry.input = x.dim(2);
  geometry.hidden = r.dim(2);
  geometry.directions = r.dim(0);
  if (geometry.input == 0) return context.Unimplemented("LSTM needs inputs with elements");
  auto activations = ReadActivations(context.attributes(), {"Sigmoid", "Tanh", "Tanh"},
                                     static_cast<int>(geometry.directions));
  if (!activations.ok()) {
    return context.InvalidArgument(std::string(activations.status().message()));
  }
  return CatchOnednn(
      context, [&] { return LstmKernel::Create(context, geometry, *std::move(activations)); });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "LSTM", DeviceKind::kCpu, PrepareLstm);

}  // namespace weft::cpu
