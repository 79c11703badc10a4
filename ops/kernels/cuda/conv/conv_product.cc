#include "ops/kernels/cuda/conv/conv_product.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/workspace_layout.h"
#include "ops/kernels/cuda/linear/batched_product.h"
#include "ops/kernels/cuda/linear/blas_lt.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Blocks that sum a channel: enough of them to fill a device, each with some thousand elements.
constexpr int64_t kSumBlocks = 1024;
constexpr int64_t kSumElements = 4096;

// A piece and what multiplies it. `adds`: to the result of earlier pieces.
struct ConvStep {
  ConvPiece piece;
  bool adds = false;
  BatchedProduct* product = nullptr;
};

// What the three kernels share: pieces with their products, and the workspace.
class ConvProductKernel : public Kernel {
 public:
  ConvProductKernel(const PrepareContext& context, const ConvPlan& plan, bool has_bias)
      : plan_(plan), has_bias_(has_bias), is_plain_(plan.is_plain()) {
    tf32_ = plan.dtype == DType::kFloat32 && context.tf32();
  }

  size_t workspace_bytes() const override { return layout_.total(); }

 protected:
  // The product of a piece: its spec for the library.
  virtual BatchedProductSpec SpecOf(const ConvStep& step) const = 0;

  // Prepares a product for each kind of step, and the workspace for the library.
  absl::Status PrepareSteps(const PrepareContext& context, std::vector<ConvStep> steps) {
    WEFT_ASSIGN_OR_RETURN(BlasLt * library, BlasLtOf(context.device()));
    size_t bytes = 0;
    for (ConvStep& step : steps) {
      const Kind kind = {step.piece.samples, step.piece.count, step.adds};
      std::unique_ptr<BatchedProduct>& product = products_[kind];
      if (product == nullptr) {
        absl::StatusOr<std::unique_ptr<BatchedProduct>> made =
            BatchedProduct::Create(*library, SpecOf(step));
        if (absl::IsUnimplemented(made.status())) {
          return context.Unimplemented(std::string(made.status().message()));
        }
        WEFT_RETURN_IF_ERROR(made.status());
        product = *std::move(made);
        bytes = std::max(bytes, product->workspace_bytes());
      }
      step.product = product.get();
    }
    steps_ = std::move(steps);
    library_offset_ = layout_.Add(bytes);
    return absl::OkStatus();
  }

  MatrixProductSpec Matrix() const {
    MatrixProductSpec matrix;
    matrix.dtype = matrix.y_dtype = plan_.dtype;
    matrix.tf32 = tf32_;
    return matrix;
  }

  absl::Status Unfold(const KernelContext& run, const ConvPiece& piece, bool by_position,
                      const void* image) const {
    cuda::Unfold unfold;
    unfold.image = At(image, Bytes(piece.first_sample * plan_.large_sample()));
    unfold.columns = At(run.workspace, columns_offset_);
    unfold.window = plan_.window;
    unfold.samples = piece.samples;
    unfold.groups = plan_.groups;
    unfold.group_channels = plan_.large_channels;
    unfold.channels = by_position ? plan_.large_channels : piece.count;
    unfold.first_channel = by_position ? 0 : piece.first;
    unfold.positions = by_position ? piece.count : plan_.window.small_size();
    unfold.first_position = by_position ? piece.first : 0;
    return LaunchStatus(LaunchUnfold(QueueOf(run), plan_.dtype, unfold), "unfolded windows");
  }

  // Fills a whole image of these channels with the bias, or zeros.
  absl::Status Fill(const KernelContext& run, void* image, int64_t channels, int64_t plane,
                    int64_t count, const void* bias) const {
    FillChannels fill;
    fill.bias = bias;
    fill.image = image;
    fill.count = count;
    fill.channels = std::max<int64_t>(channels, 1);
    fill.plane = std::max<int64_t>(plane, 1);
    return LaunchStatus(LaunchFillChannels(QueueOf(run), plan_.dtype, fill), "a filled image");
  }

  absl::Status Multiply(const KernelContext& run, const ConvStep& step, const void* a,
                        const void* b, void* y) const {
    ProductOperands operands;
    operands.a = a;
    operands.b = b;
    operands.y = y;
    return step.product->Run(operands, At(run.workspace, library_offset_), QueueOf(run));
  }

  // Of elements of the images and weights.
  size_t Bytes(int64_t elements) const { return static_cast<size_t>(elements * plan_.width()); }

  // How far addresses are aligned that lie `elements_of(piece)` behind an operand's begin.
  template <typename ElementsOf>
  static int AlignmentOfPieces(const std::vector<ConvPiece>& pieces, int64_t width,
                               ElementsOf elements_of) {
    std::vector<int64_t> offsets;
    for (const ConvPiece& piece : pieces) offsets.push_back(elements_of(piece) * width);
    return AlignmentOf(offsets);
  }

  const ConvPlan plan_;
  const bool has_bias_;
  const bool is_plain_;
  bool tf32_ = false;
  WorkspaceLayout layout_;
  size_t columns_offset_ = 0;
  std::vector<ConvStep> steps_;

 private:
  using Kind = std::tuple<int64_t, int64_t, bool>;  // samples, count, adds

  std::map<Kind, std::unique_ptr<BatchedProduct>> products_;
  size_t library_offset_ = 0;
};

std::vector<ConvStep> StepsOf(const std::vector<ConvPiece>& pieces) {
  std::vector<ConvStep> steps;
  for (const ConvPiece& piece : pieces) steps.push_back({piece});
  return steps;
}

// The largest piece.
int64_t MaxSamples(const std::vector<ConvPiece>& pieces) {
  int64_t samples = 0;
  for (const ConvPiece& piece : pieces) samples = std::max(samples, piece.samples);
  return samples;
}
int64_t MaxElements(const std::vector<ConvPiece>& pieces) {
  int64_t elements = 0;
  for (const ConvPiece& piece : pieces) elements = std::max(elements, piece.samples * piece.count);
  return elements;
}

// ---- small = W columns(large) + bias. Pieces: samples, or positions of one.

class SmallProduct final : public ConvProductKernel {
 public:
  using ConvProductKernel::ConvProductKernel;

  absl::Status Prepare(const PrepareContext& context, const ConvLimits& limits) {
    count_ = plan_.samples * plan_.small_sample();
    fills_ = count_ > 0 && (has_bias_ || plan_.filter() == 0);
    if (count_ == 0 || plan_.filter() == 0) return absl::OkStatus();
    const int64_t positions = plan_.window.small_size();
    const int64_t bytes = plan_.groups * plan_.filter() * plan_.width();
    pieces_ = is_plain_
                  ? std::vector<ConvPiece>{{0, plan_.samples, 0, positions}}
                  : CutPieces(plan_.samples, positions, bytes, limits.column_bytes, plan_.samples);
    if (!is_plain_) columns_offset_ = layout_.Add(MaxElements(pieces_) * bytes);
    return PrepareSteps(context, StepsOf(pieces_));
  }

  absl::Status Run(const KernelContext& run) override {
    void* small = run.outputs[0];
    if (fills_) {
      WEFT_RETURN_IF_ERROR(Fill(run, small, plan_.groups * plan_.small_channels,
                                plan_.window.small_size(), count_,
                                has_bias_ ? run.inputs[2] : nullptr));
    }
    for (const ConvStep& step : steps_) {
      const void* columns = run.inputs[0];
      if (!is_plain_) {
        WEFT_RETURN_IF_ERROR(Unfold(run, step.piece, /*by_position=*/true, run.inputs[0]));
        columns = At(run.workspace, columns_offset_);
      }
      WEFT_RETURN_IF_ERROR(
          Multiply(run, step, run.inputs[1], columns, At(small, Bytes(OffsetOf(step.piece)))));
    }
    return absl::OkStatus();
  }

 protected:
  BatchedProductSpec SpecOf(const ConvStep& step) const override {
    const ConvPiece& piece = step.piece;
    const int64_t positions = plan_.window.small_size();
    BatchedProductSpec spec;
    spec.matrix = Matrix();
    spec.matrix.m = plan_.small_channels;
    spec.matrix.n = piece.count;
    spec.matrix.k = spec.matrix.a_row = plan_.filter();
    spec.matrix.b_row = piece.count;
    spec.matrix.y_row = positions;
    spec.matrix.beta = fills_ ? 1 : 0;
    spec.matrix.y_alignment = AlignmentOfPieces(
        pieces_, plan_.width(), [&](const ConvPiece& other) { return OffsetOf(other); });
    const int64_t columns = plan_.filter() * piece.count;
    spec.axes = {{piece.samples, 0, plan_.groups * columns, plan_.small_sample()},
                 {plan_.groups, plan_.small_channels * plan_.filter(), columns,
                  plan_.small_channels * positions}};
    return spec;
  }

 private:
  int64_t OffsetOf(const ConvPiece& piece) const {
    return piece.first_sample * plan_.small_sample() + piece.first;
  }

  int64_t count_ = 0;
  bool fills_ = false;
  std::vector<ConvPiece> pieces_;
};

// ---- large = folded W^T small + bias. Pieces: samples, or channels of one.

class LargeProduct final : public ConvProductKernel {
 public:
  using ConvProductKernel::ConvProductKernel;

  absl::Status Prepare(const PrepareContext& context, const ConvLimits& limits) {
    count_ = plan_.samples * plan_.large_sample();
    const bool is_sum = plan_.small_channels > 0 && plan_.window.small_size() > 0;
    fills_ = count_ > 0 && (!is_sum || (is_plain_ && has_bias_));
    if (count_ == 0 || !is_sum) return absl::OkStatus();
    const int64_t bytes =
        plan_.groups * plan_.window.taps() * plan_.window.small_size() * plan_.sum_width();
    pieces_ = is_plain_ ? std::vector<ConvPiece>{{0, plan_.samples, 0, plan_.large_channels}}
                        : CutPieces(plan_.samples, plan_.large_channels, bytes, limits.column_bytes,
                                    plan_.samples);
    if (!is_plain_) columns_offset_ = layout_.Add(MaxElements(pieces_) * bytes);
    return PrepareSteps(context, StepsOf(pieces_));
  }

  absl::Status Run(const KernelContext& run) override {
    const void* bias = has_bias_ ? run.inputs[2] : nullptr;
    if (fills_) {
      WEFT_RETURN_IF_ERROR(Fill(run, run.outputs[0], plan_.groups * plan_.large_channels,
                                plan_.window.large_size(), count_, bias));
    }
    for (const ConvStep& step : steps_) {
      const ConvPiece& piece = step.piece;
      const void* weights = At(run.inputs[1], Bytes(piece.first * plan_.window.taps()));
      const void* small = At(run.inputs[0], Bytes(piece.first_sample * plan_.small_sample()));
      void* columns = is_plain_ ? run.outputs[0] : At(run.workspace, columns_offset_);
      WEFT_RETURN_IF_ERROR(Multiply(run, step, weights, small, columns));
      if (!is_plain_) WEFT_RETURN_IF_ERROR(FoldPiece(run, piece, columns, bias));
    }
    return absl::OkStatus();
  }

 protected:
  BatchedProductSpec SpecOf(const ConvStep& step) const override {
    const ConvPiece& piece = step.piece;
    const int64_t positions = plan_.window.small_size();
    BatchedProductSpec spec;
    spec.matrix = Matrix();
    if (!is_plain_) spec.matrix.y_dtype = plan_.sum_dtype();
    spec.matrix.m = piece.count * plan_.window.taps();
    spec.matrix.n = spec.matrix.b_row = spec.matrix.y_row = positions;
    spec.matrix.k = plan_.small_channels;
    spec.matrix.trans_a = true;
    spec.matrix.a_row = plan_.filter();
    spec.matrix.beta = fills_ ? 1 : 0;
    spec.matrix.a_alignment = AlignmentOfPieces(
        pieces_, plan_.width(),
        [&](const ConvPiece& other) { return other.first * plan_.window.taps(); });
    spec.matrix.b_alignment = AlignmentOfPieces(
        pieces_, plan_.width(),
        [&](const ConvPiece& other) { return other.first_sample * plan_.small_sample(); });
    const int64_t columns = spec.matrix.m * positions;
    spec.axes = {{piece.samples, 0, plan_.small_sample(), plan_.groups * columns},
                 {plan_.groups, plan_.small_channels * plan_.filter(),
                  plan_.small_channels * positions, columns}};
    return spec;
  }

 private:
  absl::Status FoldPiece(const KernelContext& run, const ConvPiece& piece, const void* columns,
                         const void* bias) const {
    Fold fold;
    fold.columns = columns;
    fold.bias = bias;
    fold.image = At(run.outputs[0], Bytes(piece.first_sample * plan_.large_sample()));
    fold.window = plan_.window;
    fold.samples = piece.samples;
    fold.groups = plan_.groups;
    fold.group_channels = plan_.large_channels;
    fold.first_channel = piece.first;
    fold.channels = piece.count;
    return LaunchStatus(LaunchFold(QueueOf(run), plan_.dtype, fold), "folded windows");
  }

  int64_t count_ = 0;
  bool fills_ = false;
  std::vector<ConvPiece> pieces_;
};

// ---- W = sum over samples of small columns(large)^T. Pieces: samples, or channels of one. Sample
// s of each piece adds to partial sum s.

class WeightsProduct final : public ConvProductKernel {
 public:
  using ConvProductKernel::ConvProductKernel;

  absl::Status Prepare(const PrepareContext& context, const ConvLimits& limits) {
    count_ = plan_.groups * plan_.small_channels * plan_.filter();
    PrepareBias();
    const int64_t positions = plan_.window.small_size();
    fills_ = plan_.samples == 0 || positions == 0;
    if (count_ == 0 || fills_) return absl::OkStatus();
    const int64_t bytes =
        is_plain_ ? 0 : plan_.groups * plan_.window.taps() * positions * plan_.width();
    const int64_t partial_bytes = count_ * plan_.sum_width();
    const int64_t max_samples = std::max<int64_t>(limits.partial_bytes / partial_bytes, 1);
    pieces_ =
        CutPieces(plan_.samples, plan_.large_channels, bytes, limits.column_bytes, max_samples);
    if (!is_plain_) columns_offset_ = layout_.Add(MaxElements(pieces_) * bytes);
    parts_ = MaxSamples(pieces_);
    has_partials_ = parts_ > 1 || plan_.dtype != plan_.sum_dtype();
    if (has_partials_) partials_offset_ = layout_.Add(parts_ * partial_bytes);
    std::vector<ConvStep> steps = StepsOf(pieces_);
    for (ConvStep& step : steps) step.adds = step.piece.first_sample > 0;
    return PrepareSteps(context, std::move(steps));
  }

  absl::Status Run(const KernelContext& run) override {
    if (has_bias_) WEFT_RETURN_IF_ERROR(SumBias(run));
    if (count_ == 0) return absl::OkStatus();
    if (fills_) return Fill(run, run.outputs[0], 1, 1, count_, nullptr);
    void* sums = has_partials_ ? At(run.workspace, partials_offset_) : run.outputs[0];
    for (const ConvStep& step : steps_) {
      const ConvPiece& piece = step.piece;
      const void* columns = At(run.inputs[0], Bytes(piece.first_sample * plan_.large_sample()));
      if (!is_plain_) {
        WEFT_RETURN_IF_ERROR(Unfold(run, piece, /*by_position=*/false, run.inputs[0]));
        columns = At(run.workspace, columns_offset_);
      }
      const void* small = At(run.inputs[1], Bytes(piece.first_sample * plan_.small_sample()));
      const int64_t first = piece.first * plan_.window.taps() * plan_.sum_width();
      WEFT_RETURN_IF_ERROR(Multiply(run, step, small, columns, At(sums, first)));
    }
    if (!has_partials_) return absl::OkStatus();
    AddPartials add;
    add.partials = sums;
    add.sums = run.outputs[0];
    add.count = count_;
    add.parts = parts_;
    return LaunchStatus(LaunchAddPartials(QueueOf(run), plan_.dtype, add), "sums of samples");
  }

 protected:
  BatchedProductSpec SpecOf(const ConvStep& step) const override {
    const ConvPiece& piece = step.piece;
    const int64_t positions = plan_.window.small_size();
    BatchedProductSpec spec;
    spec.matrix = Matrix();
    spec.matrix.y_dtype = plan_.sum_dtype();
    spec.matrix.m = plan_.small_channels;
    spec.matrix.n = piece.count * plan_.window.taps();
    spec.matrix.k = spec.matrix.a_row = spec.matrix.b_row = positions;
    spec.matrix.trans_b = true;
    spec.matrix.y_row = plan_.filter();
    spec.matrix.beta = step.adds ? 1 : 0;
    spec.matrix.a_alignment = AlignmentOfPieces(
        pieces_, plan_.width(),
        [&](const ConvPiece& other) { return other.first_sample * plan_.small_sample(); });
    if (is_plain_) {
      spec.matrix.b_alignment = AlignmentOfPieces(
          pieces_, plan_.width(),
          [&](const ConvPiece& other) { return other.first_sample * plan_.large_sample(); });
    }
    spec.matrix.y_alignment = AlignmentOfPieces(
        pieces_, plan_.sum_width(),
        [&](const ConvPiece& other) { return other.first * plan_.window.taps(); });
    const int64_t columns = spec.matrix.n * positions;
    spec.axes = {{piece.samples, plan_.small_sample(), plan_.groups * columns, count_},
                 {plan_.groups, plan_.small_channels * positions, columns,
                  plan_.small_channels * plan_.filter()}};
    return spec;
  }

 private:
  void PrepareBias() {
    const int64_t channels = plan_.groups * plan_.small_channels;
    if (!has_bias_ || channels == 0) return;
    const int64_t elements = plan_.samples * plan_.window.small_size();
    const int64_t max_parts = std::max<int64_t>(kSumBlocks / channels, 1);
    bias_parts_ = std::clamp<int64_t>(elements / kSumElements, 1, max_parts);
    bias_offset_ = layout_.Add(channels * bias_parts_ * sizeof(double));
  }

  absl::Status SumBias(const KernelContext& run) const {
    SumChannels sum;
    sum.image = run.inputs[1];
    sum.scratch = At(run.workspace, bias_offset_);
    sum.sums = run.outputs[1];
    sum.samples = plan_.samples;
    sum.channels = plan_.groups * plan_.small_channels;
    sum.plane = plan_.window.small_size();
    sum.parts = bias_parts_;
    if (sum.channels == 0) return absl::OkStatus();
    return LaunchStatus(LaunchSumChannels(QueueOf(run), plan_.dtype, sum), "sums of channels");
  }

  int64_t count_ = 0;
  bool fills_ = false;
  bool has_partials_ = false;
  int64_t parts_ = 1;
  size_t partials_offset_ = 0;
  int64_t bias_parts_ = 1;
  size_t bias_offset_ = 0;
  std::vector<ConvPiece> pieces_;
};

template <typename Product>
absl::StatusOr<std::unique_ptr<Kernel>> Make(const PrepareContext& context, const ConvPlan& plan,
                                             bool has_bias, const ConvLimits& limits) {
  auto kernel = std::make_unique<Product>(context, plan, has_bias);
  WEFT_RETURN_IF_ERROR(kernel->Prepare(context, limits));
  return kernel;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Kernel>> MakeSmallProduct(const PrepareContext& context,
                                                         const ConvPlan& plan, bool has_bias,
                                                         const ConvLimits& limits) {
  return Make<SmallProduct>(context, plan, has_bias, limits);
}
absl::StatusOr<std::unique_ptr<Kernel>> MakeLargeProduct(const PrepareContext& context,
                                                         const ConvPlan& plan, bool has_bias,
                                                         const ConvLimits& limits) {
  return Make<LargeProduct>(context, plan, has_bias, limits);
}
absl::StatusOr<std::unique_ptr<Kernel>> MakeWeightsProduct(const PrepareContext& context,
                                                           const ConvPlan& plan, bool has_bias,
                                                           const ConvLimits& limits) {
  return Make<WeightsProduct>(context, plan, has_bias, limits);
}

}  // namespace weft::cuda
