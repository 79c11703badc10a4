// Einsum: what an operand alone has is summed away; then operands are multiplied from left to
// right, each time as one batch of matrix products. An operand is copied only where its axes cannot
// be the rows, columns and batch of a product as they lie.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/defs/linear/einsum_equation.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/fold_plan.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/strided_copy.h"
#include "ops/kernels/cuda/blocks/workspace_layout.h"
#include "ops/kernels/cuda/linear/batched_product.h"
#include "ops/kernels/cuda/linear/blas_lt.h"
#include "ops/kernels/cuda/linear/einsum_launch.h"
#include "ops/kernels/cuda/linear/matmul_launch.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

using Labels = std::vector<int>;

bool HasLabel(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

// Memory of a run: an input, the output or a piece of the workspace.
struct Place {
  enum class Kind : uint8_t { kInput, kOutput, kWorkspace };
  Kind kind = Kind::kWorkspace;
  int input = 0;
  size_t offset = 0;

  const void* From(const KernelContext& run) const {
    return kind == Kind::kInput ? run.inputs[input] : To(run);
  }
  void* To(const KernelContext& run) const {
    return kind == Kind::kOutput ? run.outputs[0] : At(run.workspace, offset);
  }
};

// Numbers with a stride per label. Labels of size one, and those that are repeated, have stride 0.
struct StridedView {
  Place place;
  Labels labels;
  std::vector<int64_t> strides;

  int64_t StrideOf(int label) const {
    for (size_t d = 0; d < labels.size(); ++d) {
      if (labels[d] == label) return strides[d];
    }
    return 0;
  }
};

// One launch or call of the library.
struct EinsumStep {
  enum class Kind : uint8_t { kSum, kCopy, kProduct, kWholeProduct };
  Kind kind = Kind::kCopy;
  Place a;
  Place b;
  Place y;
  AxisSumCall sum;
  StridedCopy copy;
  std::unique_ptr<BatchedProduct> product;
  WholeProduct whole;
};

// How a matrix lies.
struct StoredMatrix {
  bool trans = false;
  int64_t row = 0;
};

class EinsumPlanner {
 public:
  EinsumPlanner(const PrepareContext& context, EinsumEquation equation)
      : context_(context),
        equation_(std::move(equation)),
        dtype_(context.InputDType(0)),
        width_(static_cast<int>(DTypeBytes(dtype_, 1))),
        sizes_(equation_.label_count, 1) {
    for (int i = 0; i < context.num_inputs(); ++i) {
      for (int d = 0; d < context.InputShape(i).rank(); ++d) {
        const int64_t size = context.InputShape(i).dim(d);
        if (size != 1) sizes_[equation_.operands[i][d]] = size;
      }
    }
  }

  // REQUIRES: no label has size 0.
  absl::Status Run() {
    const int last = context_.num_inputs() - 1;
    WEFT_ASSIGN_OR_RETURN(StridedView left, Read(0));
    for (int i = 1; i <= last; ++i) {
      WEFT_ASSIGN_OR_RETURN(const StridedView right, Read(i));
      WEFT_ASSIGN_OR_RETURN(left, Multiply(left, right, i));
    }
    if (left.place.kind == Place::Kind::kOutput) return absl::OkStatus();
    return Copy(left, DenseView({Place::Kind::kOutput}, equation_.output));
  }

  bool has_empty_label() const {
    return std::find(sizes_.begin(), sizes_.end(), 0) != sizes_.end();
  }
  std::vector<EinsumStep> TakeSteps() { return std::move(steps_); }
  // Of the views, then of the library.
  size_t library_offset() const { return layout_.total(); }
  size_t library_bytes() const { return library_bytes_; }

 private:
  bool IsElsewhere(int operand, int label) const {
    if (HasLabel(equation_.output, label)) return true;
    for (int i = 0; i < context_.num_inputs(); ++i) {
      if (i != operand && HasLabel(equation_.operands[i], label)) return true;
    }
    return false;
  }
  bool IsNeededLater(int operand, int label) const {
    if (HasLabel(equation_.output, label)) return true;
    for (int i = operand + 1; i < context_.num_inputs(); ++i) {
      if (HasLabel(equation_.operands[i], label)) return true;
    }
    return false;
  }

  int64_t SizeOf(const Labels& labels) const {
    int64_t size = 1;
    for (const int label : labels) size *= sizes_[label];
    return size;
  }

  StridedView DenseView(const Place& place, const Labels& labels) const {
    StridedView view{place, labels, std::vector<int64_t>(labels.size(), 0)};
    int64_t stride = 1;
    for (size_t d = labels.size(); d-- > 0;) {
      view.strides[d] = sizes_[labels[d]] == 1 ? 0 : stride;
      stride *= sizes_[labels[d]];
    }
    return view;
  }

  StridedView NewView(const Labels& labels) {
    const auto bytes = static_cast<size_t>(SizeOf(labels) * width_);
    return DenseView({Place::Kind::kWorkspace, 0, layout_.Add(bytes)}, labels);
  }

  // Operand i: axes that share a label are its diagonal, those of no other term are summed.
  absl::StatusOr<StridedView> Read(int operand) {
    const Labels& axes = equation_.operands[operand];
    const Shape& shape = context_.InputShape(operand);
    StridedView view{{Place::Kind::kInput, operand}, {}, {}};
    std::vector<StridedAxis> kept;
    std::vector<StridedAxis> summed;
    AxisSumCall sum;
    sum.outputs = sum.addends = 1;
    for (int d = 0; d < shape.rank(); ++d) {
      const int label = axes[d];
      if (HasLabel(Labels(axes.begin(), axes.begin() + d), label)) continue;
      StridedAxis axis{1, 0};
      for (int e = d; e < shape.rank(); ++e) {
        if (axes[e] != label || shape.dim(e) == 1) continue;
        axis.size = shape.dim(e);
        axis.stride += shape.ProductOf(e + 1, shape.rank());
      }
      if (IsElsewhere(operand, label)) {
        view.labels.push_back(label);
        view.strides.push_back(axis.size == 1 ? 0 : axis.stride);
        if (axis.size != 1) kept.push_back(axis);
        sum.outputs *= axis.size;
      } else if (axis.size != 1) {
        summed.push_back(axis);
        sum.addends *= axis.size;
      }
    }
    if (summed.empty()) return view;
    if (kept.size() > kMaxIndexAxes || summed.size() > kMaxIndexAxes) {
      return context_.Unimplemented(
          absl::StrCat("operand ", operand, " has more than ", kMaxIndexAxes, " axes to add up"));
    }
    if (kept.empty()) kept.push_back({1, 0});
    sum.kept = IndexOf(kept);
    sum.summed = IndexOf(summed);
    EinsumStep step;
    step.kind = EinsumStep::Kind::kSum;
    step.a = view.place;
    step.sum = sum;
    step.y = view.place = {Place::Kind::kWorkspace, 0,
                           layout_.Add(static_cast<size_t>(sum.outputs * width_))};
    int64_t stride = 1;
    for (size_t d = view.labels.size(); d-- > 0;) {
      if (view.strides[d] == 0) continue;
      view.strides[d] = stride;
      stride *= sizes_[view.labels[d]];
    }
    steps_.push_back(std::move(step));
    return view;
  }

  absl::Status Copy(const StridedView& from, const StridedView& to) {
    std::vector<CopyAxis> axes;
    for (size_t d = 0; d < to.labels.size(); ++d) {
      const int64_t size = sizes_[to.labels[d]];
      if (size != 1) axes.push_back({size, from.StrideOf(to.labels[d]), to.strides[d]});
    }
    EinsumStep step;
    step.a = from.place;
    step.y = to.place;
    WEFT_ASSIGN_OR_RETURN(step.copy, StridedCopy::Make(context_, std::move(axes), width_));
    steps_.push_back(std::move(step));
    return absl::OkStatus();
  }

  // From element to element of the axis that these labels are together; nullopt where they are
  // none. 1 where it has one element.
  std::optional<int64_t> OneStride(const StridedView& view, const Labels& labels) const {
    int64_t stride = 0;
    int64_t next = 0;
    for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
      if (sizes_[*label] == 1) continue;
      const int64_t own = view.StrideOf(*label);
      if (own == 0 || (stride != 0 && own != next)) return std::nullopt;
      if (stride == 0) stride = own;
      next = own * sizes_[*label];
    }
    return stride == 0 ? 1 : stride;
  }

  // The matrix of these labels as the library can read it.
  std::optional<StoredMatrix> AsMatrix(const StridedView& view, const Labels& rows,
                                       const Labels& columns) const {
    const std::optional<int64_t> down = OneStride(view, rows);
    const std::optional<int64_t> across = OneStride(view, columns);
    if (!down.has_value() || !across.has_value()) return std::nullopt;
    const int64_t m = SizeOf(rows);
    const int64_t n = SizeOf(columns);
    if ((n == 1 || *across == 1) && (m == 1 || *down >= n)) {
      return StoredMatrix{false, m == 1 ? n : *down};
    }
    if ((m == 1 || *down == 1) && (n == 1 || *across >= m)) {
      return StoredMatrix{true, n == 1 ? m : *across};
    }
    return std::nullopt;
  }

  // The view, or a dense copy of it, as matrices.
  absl::StatusOr<StoredMatrix> Arrange(StridedView& view, const Labels& batch, const Labels& rows,
                                       const Labels& columns) {
    if (IsReal()) {
      const std::optional<StoredMatrix> matrix = AsMatrix(view, rows, columns);
      if (matrix.has_value()) return *matrix;
    }
    Labels order = batch;
    order.insert(order.end(), rows.begin(), rows.end());
    order.insert(order.end(), columns.begin(), columns.end());
    StridedView dense = NewView(order);
    WEFT_RETURN_IF_ERROR(Copy(view, dense));
    view = std::move(dense);
    return StoredMatrix{false, SizeOf(columns)};
  }

  // The product of all operands up to `operand`, of which `right` is that one.
  absl::StatusOr<StridedView> Multiply(StridedView left, StridedView right, int operand) {
    Labels batch, summed, rows, columns;
    for (const int label : left.labels) {
      if (!HasLabel(right.labels, label)) {
        rows.push_back(label);
      } else {
        (IsNeededLater(operand, label) ? batch : summed).push_back(label);
      }
    }
    for (const int label : right.labels) {
      if (!HasLabel(left.labels, label)) columns.push_back(label);
    }
    WEFT_RETURN_IF_ERROR(CheckSize(batch, rows, columns));
    WEFT_ASSIGN_OR_RETURN(const StoredMatrix a, Arrange(left, batch, rows, summed));
    WEFT_ASSIGN_OR_RETURN(const StoredMatrix b, Arrange(right, batch, summed, columns));
    EinsumStep step;
    step.a = left.place;
    step.b = right.place;
    StridedView result = DenseView({Place::Kind::kOutput}, equation_.output);
    std::optional<StoredMatrix> y;
    if (operand + 1 == context_.num_inputs() && IsReal()) y = AsMatrix(result, rows, columns);
    if (!y.has_value() || y->trans) {
      Labels order = batch;
      order.insert(order.end(), rows.begin(), rows.end());
      order.insert(order.end(), columns.begin(), columns.end());
      result = NewView(order);
      y = StoredMatrix{false, SizeOf(columns)};
    }
    step.y = result.place;
    if (IsReal()) {
      BatchedProductSpec spec;
      spec.matrix.dtype = spec.matrix.y_dtype = dtype_;
      spec.matrix.tf32 = dtype_ == DType::kFloat32 && context_.tf32();
      spec.matrix.m = SizeOf(rows);
      spec.matrix.k = SizeOf(summed);
      spec.matrix.n = SizeOf(columns);
      spec.matrix.trans_a = a.trans;
      spec.matrix.trans_b = b.trans;
      spec.matrix.a_row = a.row;
      spec.matrix.b_row = b.row;
      spec.matrix.y_row = y->row;
      for (const int label : batch) {
        spec.axes.push_back(
            {sizes_[label], left.StrideOf(label), right.StrideOf(label), result.StrideOf(label)});
      }
      WEFT_ASSIGN_OR_RETURN(BlasLt * library, BlasLtOf(context_.device()));
      WEFT_ASSIGN_OR_RETURN(step.product, BatchedProduct::Create(*library, spec));
      step.kind = EinsumStep::Kind::kProduct;
      library_bytes_ = std::max(library_bytes_, step.product->workspace_bytes());
    } else {
      step.kind = EinsumStep::Kind::kWholeProduct;
      step.whole = DenseWholeProduct(SizeOf(batch), SizeOf(rows), SizeOf(summed), SizeOf(columns));
    }
    steps_.push_back(std::move(step));
    return result;
  }

  static WholeProduct DenseWholeProduct(int64_t batches, int64_t m, int64_t k, int64_t n) {
    WholeProduct product;
    product.m = m;
    product.n = n;
    product.k = k;
    product.a_row = k;
    product.a_step = 1;
    product.b_step = n;
    product.b_column = 1;
    product.batches = batches;
    product.a_batch = m * k;
    product.b_batch = k * n;
    product.y_batch = m * n;
    return product;
  }

  absl::Status CheckSize(const Labels& batch, const Labels& rows, const Labels& columns) const {
    double elements = 1;
    for (const Labels* part : {&batch, &rows, &columns}) {
      for (const int label : *part) elements *= static_cast<double>(sizes_[label]);
    }
    if (elements <= static_cast<double>(kMaxDim)) return absl::OkStatus();
    return context_.InvalidArgument(
        absl::StrCat("multiplied from left to right, the operands give a tensor of ", elements,
                     " elements; put those that share axes side by side"));
  }

  bool IsReal() const { return IsFloatingPoint(dtype_); }

  const PrepareContext& context_;
  const EinsumEquation equation_;
  const DType dtype_;
  const int width_;
  std::vector<int64_t> sizes_;  // per label
  std::vector<EinsumStep> steps_;
  WorkspaceLayout layout_;
  size_t library_bytes_ = 0;
};

class EinsumKernel final : public Kernel {
 public:
  EinsumKernel(DType dtype, EinsumPlanner& steps)
      : dtype_(dtype),
        steps_(steps.TakeSteps()),
        library_offset_(steps.library_offset()),
        bytes_(steps.library_offset() + steps.library_bytes()) {}

  size_t workspace_bytes() const override { return bytes_; }

  absl::Status Run(const KernelContext& run) override {
    for (EinsumStep& step : steps_) WEFT_RETURN_IF_ERROR(RunStep(step, run));
    return absl::OkStatus();
  }

 private:
  absl::Status RunStep(EinsumStep& step, const KernelContext& run) const {
    const LaunchQueue queue = QueueOf(run);
    switch (step.kind) {
      case EinsumStep::Kind::kSum:
        return LaunchStatus(
            LaunchAxisSum(queue, dtype_, step.sum, step.a.From(run), step.y.To(run)), "Einsum");
      case EinsumStep::Kind::kCopy:
        return LaunchStatus(step.copy.Run(queue, step.a.From(run), step.y.To(run)), "Einsum");
      case EinsumStep::Kind::kProduct: {
        ProductOperands operands;
        operands.a = step.a.From(run);
        operands.b = step.b.From(run);
        operands.y = step.y.To(run);
        return step.product->Run(operands, At(run.workspace, library_offset_), queue);
      }
      case EinsumStep::Kind::kWholeProduct:
        break;
    }
    WholeProduct product = step.whole;
    product.a = step.a.From(run);
    product.b = step.b.From(run);
    product.y = step.y.To(run);
    return LaunchStatus(LaunchWholeProduct(queue, dtype_, product), "Einsum");
  }

  const DType dtype_;
  std::vector<EinsumStep> steps_;
  const size_t library_offset_;
  const size_t bytes_;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareEinsum(const PrepareContext& context) {
  std::vector<int> ranks;
  for (int i = 0; i < context.num_inputs(); ++i) ranks.push_back(context.InputShape(i).rank());
  WEFT_ASSIGN_OR_RETURN(EinsumEquation equation,
                        EinsumEquation::Parse(context.attributes().String("equation", ""), ranks));
  const DType dtype = context.InputDType(0);
  const int64_t bytes = DTypeBytes(dtype, context.OutputShape(0).num_elements());
  EinsumPlanner steps(context, std::move(equation));
  if (steps.has_empty_label()) {  // sums of nothing
    return MakeKernel([bytes](const KernelContext& run) {
      return LaunchStatus(LaunchClear(QueueOf(run), run.outputs[0], bytes), "Einsum");
    });
  }
  const absl::Status status = steps.Run();
  if (absl::IsUnimplemented(status)) return context.Unimplemented(std::string(status.message()));
  WEFT_RETURN_IF_ERROR(status);
  return std::make_unique<EinsumKernel>(dtype, steps);
}

WEFT_REGISTER_KERNEL("", "Einsum", DeviceKind::kCuda, PrepareEinsum);

}  // namespace
}  // namespace weft::cuda
