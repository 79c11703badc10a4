// DeformConv: each tap of each window is sampled where its offset says, then a product with W. And
// DeformColumns, the sampling alone, with its gradient DeformColumnsGrad.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/workspace_layout.h"
#include "ops/kernels/cuda/conv/conv_calls.h"
#include "ops/kernels/cuda/conv/conv_plan.h"
#include "ops/kernels/cuda/conv/deform_launch.h"
#include "ops/kernels/cuda/indexing/weighted_sums_launch.h"
#include "ops/kernels/cuda/linear/batched_product.h"
#include "ops/kernels/cuda/linear/blas_lt.h"
#include "ops/window.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

constexpr int64_t kMaxDeformed = std::numeric_limits<int32_t>::max();

int64_t BytesOf(DType dtype, int64_t count) {
  return static_cast<int64_t>(DTypeBytes(dtype, count));
}

// Numbers of the inputs that are sampled.
struct DeformInputs {
  int x;
  int offset;
  int mask;
};

// The sizes and types of a node with windows of `kernel`.
absl::StatusOr<DeformCall> PlanDeform(const PrepareContext& context, const DeformInputs& inputs,
                                      const std::vector<int64_t>& kernel) {
  const Shape& x = context.InputShape(inputs.x);
  const auto window = WindowSpec::Create(context.attributes(), kernel);
  if (!window.ok()) return context.InvalidArgument(std::string(window.status().message()));
  const auto axes = window->ResolveAll(x);
  if (!axes.ok()) return context.InvalidArgument(std::string(axes.status().message()));
  DeformCall call;
  call.axes = static_cast<int>(axes->size());
  if (call.axes > kDeformAxes) {
    return context.Unimplemented(
        absl::StrCat("convolutions on GPUs have at most 3 image axes, this one has ", call.axes));
  }
  for (int i = 0; i < call.axes; ++i) {
    const WindowAxis& axis = (*axes)[static_cast<size_t>(i)];
    call.axis[kDeformAxes - call.axes + i] = {axis.input,  axis.output,   axis.kernel,
                                              axis.stride, axis.dilation, axis.pad_begin};
    call.taps *= axis.kernel;
    call.windows *= axis.output;
  }
  call.samples = x.dim(0);
  call.groups = std::max<int64_t>(context.attributes().Int("offset_group", 1), 1);
  call.channels = x.dim(1) / call.groups;
  call.x.dtype = context.InputDType(inputs.x);
  call.offset.dtype = context.InputDType(inputs.offset);
  if (context.HasInput(inputs.mask)) call.mask.dtype = context.InputDType(inputs.mask);
  return call;
}

// Unimplemented for types that there is no kernel for.
absl::Status CheckDeformTypes(const PrepareContext& context, const std::vector<int>& inputs) {
  for (const int i : inputs) {
    if (!context.HasInput(i)) continue;
    const DType dtype = context.InputDType(i);
    if (dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
        dtype == DType::kBfloat16) {
      continue;
    }
    return context.Unimplemented(
        absl::StrCat("no kernel for ", std::string(DTypeName(dtype)), " on CUDA devices"));
  }
  return absl::OkStatus();
}

// The samples from `first` on.
DeformCall PieceOf(const KernelContext& run, const DeformInputs& inputs, bool has_mask,
                   DeformCall call, int64_t first, int64_t samples) {
  const int64_t field = first * call.fields() * call.windows;
  const int64_t image = first * call.groups * call.channels * call.image();
  call.x.data = At(run.inputs[inputs.x], static_cast<size_t>(BytesOf(call.x.dtype, image)));
  call.offset.data = At(run.inputs[inputs.offset],
                        static_cast<size_t>(BytesOf(call.offset.dtype, field * call.axes)));
  if (has_mask) {
    call.mask.data =
        At(run.inputs[inputs.mask], static_cast<size_t>(BytesOf(call.mask.dtype, field)));
  }
  call.samples = samples;
  return call;
}

// ---- DeformColumns(X, offset, mask).

absl::StatusOr<std::unique_ptr<Kernel>> PrepareDeformColumns(const PrepareContext& context) {
  constexpr DeformInputs kInputs = {0, 1, 2};
  WEFT_RETURN_IF_ERROR(CheckDeformTypes(context, {0, 1, 2}));
  WEFT_ASSIGN_OR_RETURN(const DeformCall sizes,
                        PlanDeform(context, kInputs, context.attributes().Ints("kernel_shape")));
  return MakeKernel([=, has_mask = context.HasInput(2)](const KernelContext& run) {
    const DeformCall call = PieceOf(run, kInputs, has_mask, sizes, 0, sizes.samples);
    return LaunchStatus(LaunchDeformColumns(QueueOf(run), call, run.outputs[0]), "DeformColumns");
  });
}

// ---- DeformColumnsGrad(dcolumns, X, offset, mask) -> dX, doffset, dmask.

constexpr int64_t kDeformPieceTerms = int64_t{1} << 23;  // some 250 MB

class DeformGradKernel final : public Kernel {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context) {
    WEFT_RETURN_IF_ERROR(CheckDeformTypes(context, {0, 1, 2, 3}));
    WEFT_ASSIGN_OR_RETURN(const DeformCall sizes,
                          PlanDeform(context, kInputs, context.attributes().Ints("kernel_shape")));
    auto kernel = std::make_unique<DeformGradKernel>(context, sizes);
    if (!kernel->wants_[0]) return kernel;
    WeightedSums& sums = kernel->sums_;
    sums.channels = sizes.channels;
    sums.sources = sizes.taps * sizes.windows;
    sums.parts = int64_t{1} << sizes.axes;
    sums.elements = sizes.image();
    sums.has_wide_weights = true;
    const int64_t terms = std::max<int64_t>(sizes.groups * sums.sources * sums.parts, 1);
    const int64_t elements = std::max<int64_t>(sizes.groups * sums.elements, 1);
    if (terms > kMaxDeformed || elements > kMaxDeformed) {
      return context.Unimplemented("samples of 2^31 elements and more on CUDA devices");
    }
    kernel->piece_ = std::min(
        {std::max<int64_t>(kDeformPieceTerms / terms, 1), kMaxDeformed / elements, sizes.samples});
    sums.groups = kernel->piece_ * sizes.groups;
    kernel->workspace_ = sums.workspace_bytes();
    return kernel;
  }
  DeformGradKernel(const PrepareContext& context, const DeformCall& sizes)
      : sizes_(sizes), dcolumns_dtype_(context.InputDType(0)), has_mask_(context.HasInput(3)) {
    for (int i = 0; i < 3; ++i) wants_[i] = context.HasOutput(i);
  }

  size_t workspace_bytes() const override { return workspace_; }

  absl::Status Run(const KernelContext& run) override {
    if (wants_[0]) {
      for (int64_t first = 0; first < sizes_.samples; first += piece_) {
        WEFT_RETURN_IF_ERROR(SumPiece(run, first));
      }
    }
    if (!wants_[1] && !wants_[2]) return absl::OkStatus();
    const DeformCall call = PieceOf(run, kInputs, has_mask_, sizes_, 0, sizes_.samples);
    RealOutput doffset{nullptr, sizes_.offset.dtype};
    RealOutput dmask{nullptr, sizes_.mask.dtype};
    if (wants_[1]) doffset.data = run.outputs[1];
    if (wants_[2]) dmask.data = run.outputs[2];
    return LaunchStatus(
        LaunchDeformSlopes(QueueOf(run), call, {run.inputs[0], dcolumns_dtype_}, doffset, dmask),
        "DeformColumnsGrad");
  }

 private:
  static constexpr DeformInputs kInputs = {1, 2, 3};

  // dX of the samples from `first` on.
  absl::Status SumPiece(const KernelContext& run, int64_t first) const {
    const int64_t samples = std::min(piece_, sizes_.samples - first);
    const DeformCall call = PieceOf(run, kInputs, has_mask_, sizes_, first, samples);
    WeightedSums sums = sums_;
    sums.groups = samples * sizes_.groups;
    if (sums.terms() > 0) {
      WEFT_RETURN_IF_ERROR(
          LaunchStatus(LaunchDeformCorners(QueueOf(run), call, sums.Keys(run.workspace),
                                           static_cast<double*>(sums.Weights(run.workspace))),
                       "DeformColumnsGrad"));
    }
    const int64_t image = first * call.groups * call.channels * call.image();
    const RealInput dcolumns{
        At(run.inputs[0], static_cast<size_t>(BytesOf(dcolumns_dtype_, first * call.columns()))),
        dcolumns_dtype_};
    const RealOutput dx{At(run.outputs[0], static_cast<size_t>(BytesOf(call.x.dtype, image))),
                        call.x.dtype};
    return LaunchStatus(sums.Launch(QueueOf(run), dcolumns, dx, run.workspace),
                        "DeformColumnsGrad");
  }

  const DeformCall sizes_;
  const DType dcolumns_dtype_;
  const bool has_mask_;
  bool wants_[3];
  int64_t piece_ = 1;  // samples
  WeightedSums sums_;  // of a whole piece
  size_t workspace_ = 0;
};

// ---- DeformConv(X, W, offset, B, mask): columns of some samples at a time, and their products.

class DeformConvKernel final : public Kernel {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const PrepareContext& context) {
    WEFT_RETURN_IF_ERROR(CheckDeformTypes(context, {0, 1, 2, 3, 4}));
    const Shape& w = context.InputShape(1);
    WEFT_ASSIGN_OR_RETURN(
        const DeformCall sizes,
        PlanDeform(context, kInputs, std::vector<int64_t>(w.dims().begin() + 2, w.dims().end())));
    auto kernel = std::make_unique<DeformConvKernel>(context, sizes, w.dim(0));
    WEFT_RETURN_IF_ERROR(kernel->Prepare(context));
    return kernel;
  }
  DeformConvKernel(const PrepareContext& context, const DeformCall& sizes, int64_t outputs)
      : sizes_(sizes),
        groups_(std::max<int64_t>(context.attributes().Int("group", 1), 1)),
        outputs_(outputs),
        has_bias_(context.HasInput(3)),
        has_mask_(context.HasInput(4)) {}

  size_t workspace_bytes() const override { return layout_.total(); }

  absl::Status Run(const KernelContext& run) override {
    if (fills_) {
      FillChannels fill;
      fill.bias = has_bias_ ? run.inputs[3] : nullptr;
      fill.image = run.outputs[0];
      fill.count = sizes_.samples * Sample();
      fill.channels = outputs_;
      fill.plane = sizes_.windows;
      WEFT_RETURN_IF_ERROR(
          LaunchStatus(LaunchFillChannels(QueueOf(run), sizes_.x.dtype, fill), "a filled image"));
    }
    for (const DeformStep& step : steps_) WEFT_RETURN_IF_ERROR(RunStep(run, step));
    return absl::OkStatus();
  }

 private:
  static constexpr DeformInputs kInputs = {0, 2, 4};

  struct DeformStep {
    int64_t first = 0;
    int64_t samples = 0;
    BatchedProduct* product = nullptr;
  };

  int64_t Sample() const { return outputs_ * sizes_.windows; }
  // Rows of columns that an output channel is the sum of.
  int64_t Filter() const { return sizes_.groups * sizes_.channels / groups_ * sizes_.taps; }

  absl::Status Prepare(const PrepareContext& context) {
    const int64_t count = sizes_.samples * Sample();
    if (count == 0) return absl::OkStatus();
    fills_ = has_bias_ || Filter() == 0;
    if (Filter() == 0) return absl::OkStatus();
    const int64_t bytes = BytesOf(sizes_.x.dtype, sizes_.columns());
    const int64_t max_samples =
        std::min(std::max<int64_t>(kColumnBytes / bytes, 1), sizes_.samples);
    columns_ = layout_.Add(static_cast<size_t>(max_samples * bytes));
    WEFT_ASSIGN_OR_RETURN(BlasLt * library, BlasLtOf(context.device()));
    size_t library_bytes = 0;
    for (int64_t first = 0; first < sizes_.samples; first += max_samples) {
      DeformStep step{first, std::min(max_samples, sizes_.samples - first), nullptr};
      // Pieces are of one size, but for the last.
      if (!steps_.empty() && steps_.back().samples == step.samples) {
        step.product = steps_.back().product;
      } else {
        auto made = BatchedProduct::Create(
            *library, SpecOf(context, step.samples, sizes_.samples > max_samples));
        if (absl::IsUnimplemented(made.status())) {
          return context.Unimplemented(std::string(made.status().message()));
        }
        WEFT_RETURN_IF_ERROR(made.status());
        library_bytes = std::max(library_bytes, (*made)->workspace_bytes());
        step.product = made->get();
        products_.push_back(*std::move(made));
      }
      steps_.push_back(step);
    }
    library_ = layout_.Add(library_bytes);
    return absl::OkStatus();
  }

  BatchedProductSpec SpecOf(const PrepareContext& context, int64_t samples, bool has_pieces) const {
    const DType dtype = sizes_.x.dtype;
    BatchedProductSpec spec;
    spec.matrix.dtype = spec.matrix.y_dtype = dtype;
    spec.matrix.tf32 = dtype == DType::kFloat32 && context.tf32();
    spec.matrix.m = outputs_ / groups_;
    spec.matrix.n = spec.matrix.b_row = spec.matrix.y_row = sizes_.windows;
    spec.matrix.k = spec.matrix.a_row = Filter();
    spec.matrix.beta = fills_ ? 1 : 0;
    if (has_pieces) spec.matrix.y_alignment = AlignmentOf({BytesOf(dtype, samples * Sample())});
    spec.axes = {{samples, 0, sizes_.columns(), Sample()},
                 {groups_, spec.matrix.m * Filter(), Filter() * sizes_.windows,
                  spec.matrix.m * sizes_.windows}};
    return spec;
  }

  absl::Status RunStep(const KernelContext& run, const DeformStep& step) const {
    const DeformCall call = PieceOf(run, kInputs, has_mask_, sizes_, step.first, step.samples);
    void* const columns = At(run.workspace, columns_);
    WEFT_RETURN_IF_ERROR(
        LaunchStatus(LaunchDeformColumns(QueueOf(run), call, columns), "DeformConv"));
    ProductOperands operands;
    operands.a = run.inputs[1];
    operands.b = columns;
    operands.y =
        At(run.outputs[0], static_cast<size_t>(BytesOf(sizes_.x.dtype, step.first * Sample())));
    return step.product->Run(operands, At(run.workspace, library_), QueueOf(run));
  }

  const DeformCall sizes_;
  const int64_t groups_;   // of products
  const int64_t outputs_;  // channels of Y
  const bool has_bias_, has_mask_;
  bool fills_ = false;
  WorkspaceLayout layout_;
  size_t columns_ = 0;
  size_t library_ = 0;
  std::vector<DeformStep> steps_;
  std::vector<std::unique_ptr<BatchedProduct>> products_;
};

WEFT_REGISTER_KERNEL("", "DeformConv", DeviceKind::kCuda, DeformConvKernel::Create);
WEFT_REGISTER_KERNEL("ai.weft", "DeformColumns", DeviceKind::kCuda, PrepareDeformColumns);
WEFT_REGISTER_KERNEL("ai.weft", "DeformColumnsGrad", DeviceKind::kCuda, DeformGradKernel::Create);

}  // namespace
}  // namespace weft::cuda
