// SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss, their backward kernels, LossWeight and
// CountCorrect. Labels are checked on the device: one that is no class is the stream's error.
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/blocks/element_types.h"
#include "ops/kernels/cuda/blocks/fold_plan.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/line_plan.h"
#include "ops/kernels/cuda/loss/loss_calls.h"
#include "ops/kernels/cuda/normalization/softmax_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

size_t RoundedUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The labels of a node as its run finds them.
class NodeLabels {
 public:
  // `weights_input` may be absent. REQUIRES: labels are int32 or int64.
  NodeLabels(const PrepareContext& context, int labels_input, int weights_input, int64_t classes)
      : labels_input_(labels_input),
        weights_input_(context.HasInput(weights_input) ? weights_input : -1),
        source_(absl::StrCat(context.node().op, " '", context.node().name, "': label")) {
    prototype_.labels.wide = context.InputDType(labels_input) == DType::kInt64;
    if (weights_input_ >= 0) prototype_.weights.dtype = context.InputDType(weights_input);
    prototype_.report.low = 0;
    prototype_.report.high = classes;
    if (context.attributes().Has("ignore_index")) {
      prototype_.has_ignored = 1;
      prototype_.ignored = context.attributes().Int("ignore_index", 0);
    }
  }
  void TakeAny() { prototype_.any = 1; }
  bool has_weights() const { return weights_input_ >= 0; }

  // The report names this object's text, which must outlive the launch.
  LossLabels Of(const KernelContext& run) const {
    LossLabels labels = prototype_;
    labels.labels.data = run.inputs[labels_input_];
    if (has_weights()) labels.weights.data = run.inputs[weights_input_];
    labels.report.fault = run.stream->fault();
    labels.report.source = source_.c_str();
    return labels;
  }

 private:
  const int labels_input_;
  const int weights_input_;
  const std::string source_;
  LossLabels prototype_;
};

enum class LossReduction : uint8_t { kNone, kSum, kMean };

LossReduction ReductionOf(const PrepareContext& context) {
  const std::string reduction = context.attributes().String("reduction", "mean");
  if (reduction == "none") return LossReduction::kNone;
  return reduction == "sum" ? LossReduction::kSum : LossReduction::kMean;
}

LossScores ScoresOf(const Shape& shape) {
  LossScores scores;
  scores.classes = shape.dim(1);
  scores.inner = shape.ProductOf(2, shape.rank());
  scores.samples = shape.dim(0) * scores.inner;
  return scores;
}

// One value per sample, from its classes.
FoldPlan FoldOfClasses(const Shape& shape, int width, bool ragged = false) {
  std::vector<bool> reduced(shape.rank(), false);
  reduced[1] = true;
  return FoldPlan::Make(shape, reduced, width, ragged);
}

FoldPlan FoldOfAll(int64_t count) { return FoldPlan::Make(Shape{count}, {true}, 1); }

absl::Status CheckLabelType(const PrepareContext& context, int labels_input) {
  const DType dtype = context.InputDType(labels_input);
  if (dtype == DType::kInt32 || dtype == DType::kInt64) return absl::OkStatus();
  return context.Unimplemented(absl::StrCat("no kernel for labels of type ",
                                            std::string(DTypeName(dtype)), " on CUDA devices"));
}

// Workspace: losses, weights, partial totals.
template <typename T, bool softmax>
class LossKernel final : public Kernel {
 public:
  explicit LossKernel(const PrepareContext& context)
      : scores_(ScoresOf(context.InputShape(0))),
        labels_(context, 1, 2, scores_.classes),
        reduction_(ReductionOf(context)),
        has_log_prob_(context.HasOutput(1)),
        of_classes_(FoldOfClasses(context.InputShape(0), kLossWidth<T>, softmax)),
        of_samples_(FoldOfAll(scores_.samples)),
        lines_(LinePlan::Along(context.InputShape(0), 1, 16 / sizeof(T), !std::is_same_v<T, double>,
                               /*ragged=*/true)) {}

  size_t workspace_bytes() const override {
    return 2 * ArrayBytes() + std::max(of_classes_.workspace_bytes(kLossTotalBytes),
                                       of_samples_.workspace_bytes(kLossTotalBytes));
  }

  absl::Status Run(const KernelContext& run) override {
    const LaunchQueue queue = QueueOf(run);
    const T* x = In<T>(run, 0);
    char* const workspace = static_cast<char*>(run.workspace);
    double* const losses = reinterpret_cast<double*>(workspace);
    double* const weights = reinterpret_cast<double*>(workspace + ArrayBytes());
    void* const partials = workspace + 2 * ArrayBytes();
    WEFT_RETURN_IF_ERROR(
        LaunchStatus(LaunchSampleLosses(queue, softmax, of_classes_.For({x}), scores_,
                                        labels_.Of(run), x, losses, weights, partials),
                     "a loss"));
    const RealOutput y = {run.outputs[0], DTypeOf<T>::value};
    const int code =
        reduction_ == LossReduction::kNone
            ? LaunchLossCopy(queue, scores_.samples, losses, y)
            : LaunchLossTotal(queue, of_samples_.narrow, reduction_ == LossReduction::kMean, losses,
                              weights, y, partials);
    WEFT_RETURN_IF_ERROR(LaunchStatus(code, "a loss's total"));
    if (!has_log_prob_) return absl::OkStatus();
    T* const log_prob = Out<T>(run, 1);
    return LaunchStatus(LaunchSoftmax(queue, lines_.For({x, log_prob}), /*log=*/true, x, log_prob),
                        "log_prob");
  }

 private:
  size_t ArrayBytes() const {
    return RoundedUp(static_cast<size_t>(scores_.samples) * sizeof(double));
  }

  const LossScores scores_;
  const NodeLabels labels_;
  const LossReduction reduction_;
  const bool has_log_prob_;
  const FoldPlan of_classes_;
  const FoldPlan of_samples_;
  const LinePlan lines_;
};

// Workspace: the total weight of a mean, partial totals.
template <typename T, bool softmax>
class LossGradKernel final : public Kernel {
 public:
  explicit LossGradKernel(const PrepareContext& context)
      : scores_(ScoresOf(context.InputShape(1))),
        labels_(context, 2, 3, scores_.classes),
        reduction_(ReductionOf(context)),
        of_samples_(FoldOfAll(scores_.samples)),
        lines_(LinePlan::Along(context.InputShape(1), 1, 16 / sizeof(T), !std::is_same_v<T, double>,
                               /*ragged=*/true)) {}

  size_t workspace_bytes() const override {
    if (reduction_ != LossReduction::kMean) return 0;
    return kTotalBytes + of_samples_.workspace_bytes(kLossTotalBytes);
  }

  absl::Status Run(const KernelContext& run) override {
    const LaunchQueue queue = QueueOf(run);
    const T* x = In<T>(run, 1);
    T* dx = Out<T>(run, 0);
    const LossLabels labels = labels_.Of(run);
    LossSlope slope;
    slope.dy = {run.inputs[0], DTypeOf<T>::value};
    slope.per_sample = reduction_ == LossReduction::kNone ? 1 : 0;
    if (reduction_ == LossReduction::kMean) {
      slope.total_weight = static_cast<const double*>(run.workspace);
      const RealOutput total = {run.workspace, DType::kFloat64};
      char* const partials = static_cast<char*>(run.workspace) + kTotalBytes;
      WEFT_RETURN_IF_ERROR(LaunchStatus(
          LaunchLossWeight(queue, of_samples_.narrow, labels, total, partials), "a loss's weight"));
    }
    const int code = softmax
                         ? LaunchCrossEntropyGrad(queue, lines_.For({x, dx}), labels, slope, x, dx)
                         : LaunchNegativeLogGrad(queue, scores_, labels, slope, dx);
    return LaunchStatus(code, "a loss's gradient");
  }

 private:
  static constexpr size_t kTotalBytes = 64;

  const LossScores scores_;
  const NodeLabels labels_;
  const LossReduction reduction_;
  const FoldPlan of_samples_;
  const LinePlan lines_;
};

template <bool softmax>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareLoss(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckLabelType(context, 1));
  return PrepareByElement(context, context.InputDType(0), FloatElements(),
                          [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return std::make_unique<LossKernel<decltype(zero), softmax>>(context);
                          });
}

template <bool softmax>
absl::StatusOr<std::unique_ptr<Kernel>> PrepareLossGrad(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckLabelType(context, 2));
  return PrepareByElement(
      context, context.InputDType(1), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        return std::make_unique<LossGradKernel<decltype(zero), softmax>>(context);
      });
}

// Without weights any label counts; with them it must have one.
class LossWeightKernel final : public Kernel {
 public:
  explicit LossWeightKernel(const PrepareContext& context)
      : labels_(context, 0, 1, context.HasInput(1) ? context.InputShape(1).num_elements() : 0),
        dtype_(context.OutputDType(0)),
        of_samples_(FoldOfAll(context.InputShape(0).num_elements())) {
    if (!labels_.has_weights()) labels_.TakeAny();
  }

  size_t workspace_bytes() const override { return of_samples_.workspace_bytes(kLossTotalBytes); }

  absl::Status Run(const KernelContext& run) override {
    return LaunchStatus(LaunchLossWeight(QueueOf(run), of_samples_.narrow, labels_.Of(run),
                                         {run.outputs[0], dtype_}, run.workspace),
                        "LossWeight");
  }

 private:
  NodeLabels labels_;
  const DType dtype_;
  const FoldPlan of_samples_;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareLossWeight(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckLabelType(context, 0));
  if (context.HasInput(1) && context.InputDType(1) != context.OutputDType(0)) {
    return context.InvalidArgument("the weights must have the type that attribute dtype names");
  }
  return PrepareByElement(context, context.OutputDType(0), FloatElements(),
                          [&](auto) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                            return std::make_unique<LossWeightKernel>(context);
                          });
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareCountCorrect(const PrepareContext& context) {
  WEFT_RETURN_IF_ERROR(CheckLabelType(context, 1));
  const LossScores scores = ScoresOf(context.InputShape(0));
  const bool wide = context.InputDType(1) == DType::kInt64;
  const FoldPlan of_samples = FoldOfAll(scores.samples);
  const size_t hits_bytes = RoundedUp(static_cast<size_t>(scores.samples) * sizeof(double));
  return PrepareByElement(
      context, context.InputDType(0), FloatElements(),
      [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
        using T = decltype(zero);
        const FoldPlan of_classes = FoldOfClasses(context.InputShape(0), kLossWidth<T>);
        return MakeKernel(
            [=](const KernelContext& run) -> absl::Status {
              const LaunchQueue queue = QueueOf(run);
              const T* x = In<T>(run, 0);
              double* const hits = static_cast<double*>(run.workspace);
              void* const partials = static_cast<char*>(run.workspace) + hits_bytes;
              WEFT_RETURN_IF_ERROR(
                  LaunchStatus(LaunchCorrect(queue, of_classes.For({x}), {run.inputs[1], wide}, x,
                                             hits, partials),
                               "CountCorrect"));
              return LaunchStatus(
                  LaunchLossTotal(queue, of_samples.narrow, /*mean=*/false, hits, nullptr,
                                  {run.outputs[0], DType::kFloat32}, partials),
                  "CountCorrect");
            },
            hits_bytes + std::max(of_classes.workspace_bytes(kLossTotalBytes),
                                  of_samples.workspace_bytes(kLossTotalBytes)));
      });
}

WEFT_REGISTER_KERNEL("", "SoftmaxCrossEntropyLoss", DeviceKind::kCuda, PrepareLoss<true>);
WEFT_REGISTER_KERNEL("", "NegativeLogLikelihoodLoss", DeviceKind::kCuda, PrepareLoss<false>);
WEFT_REGISTER_KERNEL(kWeftDomain, "SoftmaxCrossEntropyGrad", DeviceKind::kCuda,
                     PrepareLossGrad<true>);
WEFT_REGISTER_KERNEL(kWeftDomain, "NegativeLogLikelihoodGrad", DeviceKind::kCuda,
                     PrepareLossGrad<false>);
WEFT_REGISTER_KERNEL(kWeftDomain, "LossWeight", DeviceKind::kCuda, PrepareLossWeight);
WEFT_REGISTER_KERNEL(kWeftDomain, "CountCorrect", DeviceKind::kCuda, PrepareCountCorrect);

}  // namespace
}  // namespace weft::cuda
