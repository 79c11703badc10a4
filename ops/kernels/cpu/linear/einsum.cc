// Einsum: operands are first brought to distinct axes that others need, then multiplied from left
// to right, each time as a batch of matrix products, and the result is put into order.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "oneapi/dnnl/dnnl.hpp"
#include "ops/defs/linear/einsum_equation.h"
#include "ops/kernels/cpu/blocks/onednn.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

using Labels = std::vector<int>;

bool Contains(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

// A dense tensor in the workspace, with one axis per label; a size of one broadcasts.
struct Term {
  Labels labels;
  std::vector<int64_t> sizes;
  size_t offset = 0;

  int64_t elements() const {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  }
  // Elements to go on by along `label`; 0 where the term has no such axis or it broadcasts.
  int64_t StrideOf(int label) const {
    int64_t stride = 1;
    for (size_t d = labels.size(); d-- > 0;) {
      if (labels[d] == label) return sizes[d] == 1 ? 0 : stride;
      stride *= sizes[d];
    }
    return 0;
  }
};

// Reads an operand: sums its axes `summed` away and takes diagonals, where axes share a label.
struct ReadStep {
  struct Axis {
    int64_t size = 1;
    int64_t stride = 0;
  };
  std::vector<Axis> kept;  // major first, in the order of the term
  std::vector<Axis> summed;
  int64_t outputs = 1;
  int64_t addends = 1;
  size_t to = 0;

  static int64_t Offset(const std::vector<Axis>& axes, int64_t index) {
    int64_t offset = 0;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      offset += index % axis->size * axis->stride;
      index /= axis->size;
    }
    return offset;
  }
};

// C[batch, m, n] = A[batch, m, k] B[batch, k, n], after copies into these layouts.
struct ProductStep {
  StridedCopy pack_a;
  StridedCopy pack_b;
  size_t from_a = 0;
  size_t from_b = 0;
  size_t a = 0;  // the packed operands; equal to from_a, from_b where nothing has to move
  size_t b = 0;
  size_t c = 0;
  int64_t batch = 1;
  int64_t m = 1;
  int64_t k = 1;
  int64_t n = 1;
};

struct EinsumPlan {
  std::vector<ReadStep> reads;
  std::vector<ProductStep> products;
  StridedCopy arrange;  // from the last term to the order of the output
  size_t result = 0;
  int64_t elements = 0;  // of the output
  size_t arranged = 0;
  WorkspaceLayout workspace;
};

// Builds the plan; `width` is the size of an element in the workspace.
class Planner {
 public:
  Planner(const EinsumEquation& equation, const std::vector<Shape>& shapes, int width)
      : equation_(equation), shapes_(shapes), width_(width), sizes_(equation.label_count, 1) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      for (int d = 0; d < shapes[i].rank(); ++d) {
        int64_t& size = sizes_[equation.operands[i][d]];
        if (shapes[i].dim(d) != 1) size = shapes[i].dim(d);
      }
    }
  }

  // InvalidArgument when a product on the way has more elements than any tensor may have.
  absl::StatusOr<EinsumPlan> Run() {
    Term left = Read(0);
    for (size_t i = 1; i < shapes_.size(); ++i) {
      const Term right = Read(i);
      WEFT_RETURN_IF_ERROR(CheckProduct(left, right, i));
      left = Multiply(left, right, i);
    }
    std::vector<CopyAxis> axes;
    int64_t stride = 1;
    for (const int label : equation_.output) stride *= sizes_[label];
    plan_.elements = stride;
    for (const int label : equation_.output) {
      if (sizes_[label] != 0) stride /= sizes_[label];
      axes.push_back({sizes_[label], left.StrideOf(label), stride});
    }
    plan_.arrange = StridedCopy(std::move(axes), width_);
    plan_.result = left.offset;
    plan_.arranged = plan_.workspace.Add(plan_.elements * width_);
    return std::move(plan_);
  }

 private:
  // Whether an operand after `operand`, or the output, has the label.
  bool IsNeededAfter(size_t operand, int label) const {
    if (Contains(equation_.output, label)) return true;
    for (size_t i = operand + 1; i < shapes_.size(); ++i) {
      if (Contains(equation_.operands[i], label)) return true;
    }
    return false;
  }
  bool IsNeededElsewhere(size_t operand, int label) const {
    if (Contains(equation_.output, label)) return true;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      if (i != operand && Contains(equation_.operands[i], label)) return true;
    }
    return false;
  }

  Term Read(size_t operand) {
    const Labels& labels = equation_.operands[operand];
    const Shape& shape = shapes_[operand];
    Term term;
    ReadStep step;
    for (size_t d = 0; d < labels.size(); ++d) {
      const int label = labels[d];
      if (Contains(Labels(labels.begin(), labels.begin() + d), label)) continue;
      ReadStep::Axis axis{1, 0};
      for (size_t e = d; e < labels.size(); ++e) {
        if (labels[e] != label || shape.dim(e) == 1) continue;
        axis.size = shape.dim(e);
        axis.stride += shape.ProductOf(e + 1, shape.rank());
      }
      if (IsNeededElsewhere(operand, label)) {
        term.labels.push_back(label);
        term.sizes.push_back(axis.size);
        step.kept.push_back(axis);
        step.outputs *= axis.size;
      } else {
        step.summed.push_back(axis);
        step.addends *= axis.size;
      }
    }
    term.offset = step.to = plan_.workspace.Add(term.elements() * width_);
    plan_.reads.push_back(std::move(step));
    return term;
  }

  absl::Status CheckProduct(const Term& left, const Term& right, size_t operand) const {
    double elements = 1;  // of the result: what is summed here has no axis there
    for (const int label : left.labels) {
      const bool summed = Contains(right.labels, label) && !IsNeededAfter(operand, label);
      if (!summed) elements *= static_cast<double>(sizes_[label]);
    }
    for (const int label : right.labels) {
      if (!Contains(left.labels, label)) elements *= static_cast<double>(sizes_[label]);
    }
    if (elements <= static_cast<double>(kMaxDim)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("multiplied from left to right, the operands give a tensor of ", elements,
                     " elements; put those that share axes side by side"));
  }

  // The product of all operands up to `operand`, of which `right` is that one.
  Term Multiply(const Term& left, const Term& right, size_t operand) {
    Labels batch, summed, rows, columns;
    for (const int label : left.labels) {
      if (!Contains(right.labels, label)) {
        rows.push_back(label);
      } else {
        (IsNeededAfter(operand, label) ? batch : summed).push_back(label);
      }
    }
    for (const int label : right.labels) {
      if (!Contains(left.labels, label)) columns.push_back(label);
    }
    ProductStep step;
    step.batch = SizeOf(batch);
    step.m = SizeOf(rows);
    step.k = SizeOf(summed);
    step.n = SizeOf(columns);
    Pack(left, {batch, rows, summed}, step.pack_a, step.from_a, step.a);
    Pack(right, {batch, summed, columns}, step.pack_b, step.from_b, step.b);
    Term result;
    for (const Labels& part : {batch, rows, columns}) {
      for (const int label : part) {
        result.labels.push_back(label);
        result.sizes.push_back(sizes_[label]);
      }
    }
    result.offset = step.c = plan_.workspace.Add(result.elements() * width_);
    plan_.products.push_back(std::move(step));
    return result;
  }

  int64_t SizeOf(const Labels& labels) const {
    int64_t size = 1;
    for (const int label : labels) size *= sizes_[label];
    return size;
  }

  void Pack(const Term& term, const std::vector<Labels>& parts, StridedCopy& copy, size_t& from,
            size_t& to) {
    Labels order;
    for (const Labels& part : parts) order.insert(order.end(), part.begin(), part.end());
    from = term.offset;
    to = from;
    if (order == term.labels && SizeOf(order) == term.elements()) return;
    std::vector<CopyAxis> axes(order.size());
    int64_t stride = 1;
    for (size_t d = order.size(); d-- > 0;) {
      axes[d] = {sizes_[order[d]], term.StrideOf(order[d]), stride};
      stride *= sizes_[order[d]];
    }
    copy = StridedCopy(std::move(axes), width_);
    to = plan_.workspace.Add(stride * width_);
  }

  const EinsumEquation& equation_;
  const std::vector<Shape>& shapes_;
  const int width_;
  std::vector<int64_t> sizes_;  // per label
  EinsumPlan plan_;
};

// Whole numbers wrap around in their own type; floats are added in float or double.
template <typename T>
using WorkType = ComputeType<T>;

template <typename C>
C MultiplyAdd(C total, C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(total) +
                          static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return total + a * b;
  }
}

template <typename C>
absl::Status MultiplyMatrices(int64_t m, int64_t n, int64_t k, const C* a, const C* b, C* c) {
  if constexpr (std::is_same_v<C, float>) {
    if (m > 0 && n > 0 && k > 0) {
      const dnnl_status_t status = dnnl_sgemm('N', 'N', m, n, k, 1.0f, a, k, b, n, 0.0f, c, n);
      return status == dnnl_success ? absl::OkStatus()
                                    : absl::InternalError("oneDNN's matrix product failed");
    }
  }
  std::fill(c, c + m * n, C{0});
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      const C factor = a[i * k + l];
      const C* row = b + l * n;
      C* out = c + i * n;
      for (int64_t j = 0; j < n; ++j) out[j] = MultiplyAdd<C>(out[j], factor, row[j]);
    }
  }
  return absl::OkStatus();
}

template <typename T>
class EinsumKernel final : public Kernel {
 public:
  using C = WorkType<T>;
  EinsumKernel(EinsumPlan plan, int threads) : plan_(std::move(plan)), threads_(threads) {
    if constexpr (std::is_same_v<C, float>) MakeClassicProductCode();
  }

  size_t workspace_bytes() const override { return plan_.workspace.total(); }

  absl::Status Run(const KernelContext& run) override {
    for (size_t i = 0; i < plan_.reads.size(); ++i) {
      Read(plan_.reads[i], Input<T>(run, static_cast<int>(i)), run.workspace);
    }
    const ThreadBudget budget(threads_);
    for (const ProductStep& step : plan_.products) {
      WEFT_RETURN_IF_ERROR(Multiply(step, run.workspace));
    }
    if (plan_.elements == 0) return absl::OkStatus();
    const C* arranged = static_cast<const C*>(At(run.workspace, plan_.arranged));
    plan_.arrange.Run(At(run.workspace, plan_.result), At(run.workspace, plan_.arranged), threads_);
    T* out = Output<T>(run, 0);
    for (int64_t i = 0; i < plan_.elements; ++i) out[i] = Store<T>(arranged[i]);
    return absl::OkStatus();
  }

 private:
  void Read(const ReadStep& step, const T* x, void* workspace) const {
    C* out = static_cast<C*>(At(workspace, step.to));
    ParallelFor(threads_, step.outputs, 5 * static_cast<double>(step.addends), 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t o = begin; o < end; ++o) {
                    const T* base = x + ReadStep::Offset(step.kept, o);
                    C total = 0;
                    for (int64_t a = 0; a < step.addends; ++a) {
                      const C element = Load(base[ReadStep::Offset(step.summed, a)]);
                      total = MultiplyAdd<C>(total, element, C{1});
                    }
                    out[o] = total;
                  }
                });
  }

  absl::Status Multiply(const ProductStep& step, void* workspace) const {
    if (step.a != step.from_a) {
      step.pack_a.Run(At(workspace, step.from_a), At(workspace, step.a), threads_);
    }
    if (step.b != step.from_b) {
      step.pack_b.Run(At(workspace, step.from_b), At(workspace, step.b), threads_);
    }
    const C* a = static_cast<const C*>(At(workspace, step.a));
    const C* b = static_cast<const C*>(At(workspace, step.b));
    C* c = static_cast<C*>(At(workspace, step.c));
    for (int64_t i = 0; i < step.batch; ++i) {
      WEFT_RETURN_IF_ERROR(MultiplyMatrices<C>(step.m, step.n, step.k, a + i * step.m * step.k,
                                               b + i * step.k * step.n, c + i * step.m * step.n));
    }
    return absl::OkStatus();
  }

  const EinsumPlan plan_;
  const int threads_;
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareEinsum(const PrepareContext& context) {
  std::vector<Shape> shapes;
  std::vector<int> ranks;
  for (int i = 0; i < context.num_inputs(); ++i) {
    shapes.push_back(context.InputShape(i));
    ranks.push_back(shapes.back().rank());
  }
  WEFT_ASSIGN_OR_RETURN(const EinsumEquation equation,
                        EinsumEquation::Parse(context.attributes().String("equation", ""), ranks));
  const int threads = OnednnThreads(context);
  return PrepareByDType(context, context.InputDType(0), NumericTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          const int width = sizeof(WorkType<T>);
                          WEFT_ASSIGN_OR_RETURN(EinsumPlan plan,
                                                Planner(equation, shapes, width).Run());
                          return std::make_unique<EinsumKernel<T>>(std::move(plan), threads);
                        });
}

WEFT_REGISTER_KERNEL("", "Einsum", DeviceKind::kCpu, PrepareEinsum);

}  // namespace
}  // namespace weft::cpu
