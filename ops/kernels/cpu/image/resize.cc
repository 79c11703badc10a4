// Resize: nearest is a copy by tables; linear and cubic are weighted sums, one axis after another,
// the axis that shrinks most first, with the elements behind that axis as the vectors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/defs/image/resize_axis.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/table_gather.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/blocks/workspace.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// ---- The sums of one axis.

template <typename S>
struct AxisPass {
  int64_t outer = 1;
  int64_t input = 0;
  int64_t output = 0;
  int64_t inner = 1;
  // Taps of output i: [starts[i], starts[i + 1]) of these; weights of zero are left out.
  std::vector<int64_t> starts = {0};
  std::vector<int64_t> indices;
  std::vector<S> weights;
};

template <typename S>
AxisPass<S> MakePass(const ResizeTaps& taps, const Shape& shape, int axis, int64_t output) {
  AxisPass<S> pass;
  pass.outer = shape.ProductOf(0, axis);
  pass.input = shape.dim(axis);
  pass.output = output;
  pass.inner = shape.ProductOf(axis + 1, shape.rank());
  for (int64_t i = 0; i < output; ++i) {
    for (int64_t k = i * taps.taps; k < (i + 1) * taps.taps; ++k) {
      if (taps.weights[k] == 0) continue;
      pass.indices.push_back(taps.indices[k]);
      pass.weights.push_back(static_cast<S>(taps.weights[k]));
    }
    pass.starts.push_back(static_cast<int64_t>(pass.indices.size()));
  }
  return pass;
}

// The way back along an axis of `shape`, which is as long there as the resized image: every element
// of the other one is the sum of those that it was a part of.
template <typename S>
AxisPass<S> MakeTransposedPass(const ResizeTaps& taps, const Shape& shape, int axis,
                               int64_t output) {
  AxisPass<S> pass;
  pass.outer = shape.ProductOf(0, axis);
  pass.input = shape.dim(axis);
  pass.output = output;
  pass.inner = shape.ProductOf(axis + 1, shape.rank());
  const auto counts = [&](int64_t i, int64_t k) {
    return taps.weights[k] != 0 && (taps.outside.empty() || !taps.outside[i]);
  };
  pass.starts.assign(output + 1, 0);
  for (int64_t i = 0; i < pass.input; ++i) {
    for (int64_t k = i * taps.taps; k < (i + 1) * taps.taps; ++k) {
      if (counts(i, k)) ++pass.starts[taps.indices[k] + 1];
    }
  }
  for (int64_t i = 0; i < output; ++i) pass.starts[i + 1] += pass.starts[i];
  pass.indices.resize(pass.starts[output]);
  pass.weights.resize(pass.starts[output]);
  std::vector<int64_t> next(pass.starts.begin(), pass.starts.end() - 1);
  for (int64_t i = 0; i < pass.input; ++i) {
    for (int64_t k = i * taps.taps; k < (i + 1) * taps.taps; ++k) {
      if (!counts(i, k)) continue;
      const int64_t at = next[taps.indices[k]]++;
      pass.indices[at] = i;
      pass.weights[at] = static_cast<S>(taps.weights[k]);
    }
  }
  return pass;
}

template <typename S>
void SumRow(const AxisPass<S>& pass, const S* from, S* to) {
  for (int64_t i = 0; i < pass.output; ++i) {
    S sum = 0;
    for (int64_t k = pass.starts[i]; k < pass.starts[i + 1]; ++k) {
      sum += pass.weights[k] * from[pass.indices[k]];
    }
    to[i] = sum;
  }
}

// One output index of the axis: `inner` sums side by side.
template <typename S>
void SumVectors(const AxisPass<S>& pass, int64_t i, const S* from, S* to) {
  const int64_t first = pass.starts[i];
  const int64_t count = pass.starts[i + 1] - first;
  const int64_t n = pass.inner;
  if (count == 2) {
    const S* a = from + pass.indices[first] * n;
    const S* b = from + pass.indices[first + 1] * n;
    const S wa = pass.weights[first];
    const S wb = pass.weights[first + 1];
    for (int64_t j = 0; j < n; ++j) to[j] = wa * a[j] + wb * b[j];
    return;
  }
  std::fill_n(to, n, S(0));
  for (int64_t k = first; k < first + count; ++k) {
    const S* a = from + pass.indices[k] * n;
    const S w = pass.weights[k];
    for (int64_t j = 0; j < n; ++j) to[j] += w * a[j];
  }
}

template <typename S>
void RunPass(const AxisPass<S>& pass, const S* from, S* to, int threads) {
  const double taps = pass.output == 0 ? 0
                                       : static_cast<double>(pass.indices.size()) /
                                             static_cast<double>(pass.output);
  if (pass.inner == 1) {
    const double nanoseconds = taps * static_cast<double>(pass.output);
    ParallelFor(threads, pass.outer, nanoseconds, 1, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o)
        SumRow(pass, from + o * pass.input, to + o * pass.output);
    });
    return;
  }
  const double nanoseconds = 2 + 0.2 * taps * static_cast<double>(pass.inner);
  ParallelFor(threads, pass.outer * pass.output, nanoseconds, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      SumVectors(pass, row % pass.output, from + row / pass.output * pass.input * pass.inner,
                 to + row * pass.inner);
    }
  });
}

// ---- Elements and sums of other types.

template <typename T, typename S>
T Rounded(S value) {
  if constexpr (std::is_same_v<T, S>) {
    return value;
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else {
    const S whole = std::nearbyint(value);
    if (!(whole > static_cast<S>(std::numeric_limits<T>::lowest()))) {
      return std::numeric_limits<T>::lowest();
    }
    if (whole >= static_cast<S>(std::numeric_limits<T>::max())) {
      return std::numeric_limits<T>::max();
    }
    return static_cast<T>(whole);
  }
}

// Outputs outside the region of tf_crop_and_resize.
struct OutsideMask {
  Shape output;
  std::vector<std::vector<bool>> axes;  // one per axis; empty: all inside
  bool any = false;

  template <typename T>
  void Apply(T value, T* y) const {
    if (!any) return;
    for (int64_t i = 0; i < output.num_elements(); ++i) {
      int64_t rest = i;
      for (int axis = output.rank() - 1; axis >= 0; --axis) {
        const int64_t position = rest % output.dim(axis);
        rest /= output.dim(axis);
        if (!axes[axis].empty() && axes[axis][position]) y[i] = value;
      }
    }
  }
};

// T: elements; S: float or double.
template <typename T, typename S>
class ResizeKernel final : public Kernel {
 public:
  ResizeKernel(const PrepareContext& context, const ResizeSpec& spec,
               const std::vector<ResizeAxis>& axes)
      : threads_(context.threads()),
        input_elements_(context.InputShape(0).num_elements()),
        output_elements_(context.OutputShape(0).num_elements()),
        extrapolation_(Rounded<T, S>(static_cast<S>(spec.extrapolation_value))) {
    outside_.output = context.OutputShape(0);
    outside_.axes.resize(axes.size());
    std::vector<int> order;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (!axes[i].IsIdentity()) order.push_back(static_cast<int>(i));
    }
    const auto growth = [&](int i) {
      return static_cast<double>(axes[i].output) / static_cast<double>(axes[i].input);
    };
    // Of axes that grow alike the last first: its sums have no vectors, so let there be few.
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      if (growth(a) != growth(b)) return growth(a) < growth(b);
      return growth(a) > 1 && a > b;
    });
    Shape shape = context.InputShape(0);
    int64_t largest = input_elements_;
    for (const int axis : order) {
      ResizeTaps taps = MakeResizeTaps(spec, axes[axis]);
      passes_.push_back(MakePass<S>(taps, shape, axis, axes[axis].output));
      outside_.any |= !taps.outside.empty();
      outside_.axes[axis] = std::move(taps.outside);
      shape.set_dim(axis, axes[axis].output);
      largest = std::max(largest, shape.num_elements());
    }
    for (size_t& offset : buffers_) offset = layout_.Add(largest * sizeof(S));
  }

  size_t workspace_bytes() const override { return layout_.total(); }

  absl::Status Run(const KernelContext& context) override {
    const T* x = Input<T>(context, 0);
    T* y = Output<T>(context, 0);
    S* const buffers[] = {static_cast<S*>(At(context.workspace, buffers_[0])),
                          static_cast<S*>(At(context.workspace, buffers_[1]))};
    const S* from = nullptr;
    if constexpr (std::is_same_v<T, S>) {
      from = x;
    } else {
      for (int64_t i = 0; i < input_elements_; ++i) buffers[0][i] = static_cast<S>(x[i]);
      from = buffers[0];
    }
    for (size_t i = 0; i < passes_.size(); ++i) {
      S* to = buffers[from == buffers[0] ? 1 : 0];
      if constexpr (std::is_same_v<T, S>) {
        if (i + 1 == passes_.size()) to = y;
      }
      RunPass(passes_[i], from, to, threads_);
      from = to;
    }
    if (static_cast<const void*>(from) != static_cast<const void*>(y)) {
      for (int64_t i = 0; i < output_elements_; ++i) y[i] = Rounded<T, S>(from[i]);
    }
    outside_.Apply(extrapolation_, y);
    return absl::OkStatus();
  }

 private:
  const int threads_;
  const int64_t input_elements_;
  const int64_t output_elements_;
  const T extrapolation_;
  std::vector<AxisPass<S>> passes_;
  OutsideMask outside_;
  WorkspaceLayout layout_;
  size_t buffers_[2];
};

// ---- Nearest: a copy.

absl::StatusOr<std::unique_ptr<Kernel>> MakeNearest(const PrepareContext& context,
                                                    const ResizeSpec& spec,
                                                    const std::vector<ResizeAxis>& axes) {
  std::vector<std::vector<int64_t>> tables;
  for (const ResizeAxis& axis : axes) {
    if (axis.IsIdentity()) {
      tables.emplace_back();
      for (int64_t i = 0; i < axis.input; ++i) tables.back().push_back(i);
      continue;
    }
    ResizeTaps taps = MakeResizeTaps(spec, axis);
    for (size_t i = 0; i < taps.outside.size(); ++i) {
      if (taps.outside[i]) taps.indices[i] = -1;
    }
    tables.push_back(std::move(taps.indices));
  }
  if (spec.extrapolation_value == 0) return MakeTableGather(context, std::move(tables), -1);
  WEFT_ASSIGN_OR_RETURN(
      const Tensor fill,
      CastTensor(Tensor::Scalar<float>(spec.extrapolation_value), context.InputDType(0)));
  const TableGather gather(context.InputShape(0), std::move(tables),
                           DTypeBits(context.InputDType(0)) / 8);
  const int threads = context.threads();
  return MakeKernel([=](const KernelContext& run) {
    gather.Run(run.inputs[0], fill.raw_data(), run.outputs[0], threads);
    return absl::OkStatus();
  });
}

using ResizedTypes = TypeList<float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                              uint32_t, uint64_t, bool>;

absl::StatusOr<std::unique_ptr<Kernel>> MakeWeighted(const PrepareContext& context,
                                                     const ResizeSpec& spec,
                                                     const std::vector<ResizeAxis>& axes) {
  return PrepareByDType(context, context.InputDType(0), ResizedTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          // Whole numbers are rounded: the sums must not be off by a little.
                          using S = std::conditional_t<std::is_same_v<T, float>, float, double>;
                          return std::make_unique<ResizeKernel<T, S>>(context, spec, axes);
                        });
}

absl::StatusOr<std::vector<ResizeAxis>> AxesOf(const PrepareContext& context,
                                               const ResizeSpec& spec, const Shape& input,
                                               int roi) {
  absl::StatusOr<std::vector<ResizeAxis>> axes = ReadResizeOperands(context, spec, input, roi);
  if (!absl::IsInvalidArgument(axes.status())) return axes;
  return context.InvalidArgument(std::string(axes.status().message()));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareResize(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ResizeSpec spec, ResizeSpec::Create(context.attributes()));
  WEFT_ASSIGN_OR_RETURN(const std::vector<ResizeAxis> axes,
                        AxesOf(context, spec, context.InputShape(0), 1));
  if (spec.mode == ResizeMode::kNearest) return MakeNearest(context, spec, axes);
  return MakeWeighted(context, spec, axes);
}

// Halves are copied as they are, and summed in float.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareAnyResize(const PrepareContext& context) {
  if (context.attributes().String("mode", "nearest") == "nearest") return PrepareResize(context);
  return Widened(PrepareResize)(context);
}

// ---- Gradient.

template <typename T>
class ResizeGradKernel final : public Kernel {
 public:
  ResizeGradKernel(const PrepareContext& context, const ResizeSpec& spec,
                   const std::vector<ResizeAxis>& axes)
      : threads_(context.threads()), elements_(context.OutputShape(0).num_elements()) {
    Shape shape = context.InputShape(0);
    std::vector<int> order;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (!axes[i].IsIdentity()) order.push_back(static_cast<int>(i));
    }
    // What shrinks most first.
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return axes[a].output * axes[b].input > axes[b].output * axes[a].input;
    });
    int64_t largest = 0;
    for (const int axis : order) {
      passes_.push_back(
          MakeTransposedPass<T>(MakeResizeTaps(spec, axes[axis]), shape, axis, axes[axis].input));
      shape.set_dim(axis, axes[axis].input);
      largest = std::max(largest, shape.num_elements());
    }
    for (size_t& offset : buffers_) offset = layout_.Add(largest * sizeof(T));
  }

  size_t workspace_bytes() const override { return layout_.total(); }

  absl::Status Run(const KernelContext& context) override {
    const T* from = Input<T>(context, 0);
    T* const dx = Output<T>(context, 0);
    if (passes_.empty()) std::copy_n(from, elements_, dx);
    for (size_t i = 0; i < passes_.size(); ++i) {
      T* const to =
          i + 1 == passes_.size() ? dx : static_cast<T*>(At(context.workspace, buffers_[i % 2]));
      RunPass(passes_[i], from, to, threads_);
      from = to;
    }
    return absl::OkStatus();
  }

 private:
  const int threads_;
  const int64_t elements_;
  std::vector<AxisPass<T>> passes_;
  WorkspaceLayout layout_;
  size_t buffers_[2];
};

absl::StatusOr<std::unique_ptr<Kernel>> PrepareResizeGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ResizeSpec spec, ResizeSpec::Create(context.attributes()));
  WEFT_ASSIGN_OR_RETURN(const std::vector<ResizeAxis> axes,
                        AxesOf(context, spec, context.OutputShape(0), 2));
  const Shape& dy = context.InputShape(0);
  for (int i = 0; i < dy.rank(); ++i) {
    if (static_cast<int>(axes.size()) == dy.rank() && axes[i].output == dy.dim(i)) continue;
    return context.InvalidArgument(absl::StrCat("dY of shape ", dy.ToString(),
                                                " is not what an image of shape ",
                                                context.OutputShape(0).ToString(), " becomes"));
  }
  return PrepareByDType(context, context.InputDType(0), TypeList<float, double>{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return std::make_unique<ResizeGradKernel<decltype(zero)>>(context, spec,
                                                                                    axes);
                        });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "Resize", DeviceKind::kCpu, PrepareAnyResize);
WEFT_REGISTER_KERNEL("ai.weft", "ResizeGrad", DeviceKind::kCpu, Widened(PrepareResizeGrad));
WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "ResizeGrad", PrepareResizeGrad);

}  // namespace weft::cpu
