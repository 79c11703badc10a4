// Resize and ResizeGrad.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/defs/image/resize_axis.h"
#include "ops/kernels/cuda/blocks/launch_status.h"
#include "ops/kernels/cuda/blocks/strided_copy.h"
#include "ops/kernels/cuda/blocks/workspace_layout.h"
#include "ops/kernels/cuda/image/device_table.h"
#include "ops/kernels/cuda/image/resize_launch.h"
#include "platform/status_macros.h"
#include "tensor/tensor.h"

namespace weft::cuda {
namespace {

absl::StatusOr<std::vector<ResizeAxis>> ResizedAxesOf(const PrepareContext& context,
                                                      const ResizeSpec& spec, const Shape& input,
                                                      int roi) {
  absl::StatusOr<std::vector<ResizeAxis>> axes = ReadResizeOperands(context, spec, input, roi);
  if (!absl::IsInvalidArgument(axes.status())) return axes;
  return context.InvalidArgument(std::string(axes.status().message()));
}

// ---- Copies by tables.

// A copy by the tables of some axes: -1 is outside; an empty table is the axis as it is.
struct TableCopy {
  ResizedAxes axes;
  size_t offset = 0;
  bool has_outside = false;
};

absl::StatusOr<TableCopy> PlanTableCopy(const PrepareContext& context, const Shape& input,
                                        const Shape& output,
                                        const std::vector<std::vector<int64_t>>& tables,
                                        DeviceTable& device) {
  TableCopy copy;
  copy.axes.count = output.num_elements();
  std::vector<int64_t> all;
  bool last_is_plain = false;
  for (int d = output.rank() - 1; d >= 0; --d) {
    const std::vector<int64_t>& table = tables[d];
    if (table.empty() && last_is_plain) {  // neighbours that stay are one axis
      copy.axes.sizes[copy.axes.axes - 1] *= output.dim(d);
      continue;
    }
    if (copy.axes.axes == kMaxResizedAxes) {
      return context.Unimplemented(absl::StrCat("more than ", kMaxResizedAxes, " resized axes"));
    }
    const int n = copy.axes.axes++;
    copy.axes.sizes[n] = output.dim(d);
    copy.axes.strides[n] = input.ProductOf(d + 1, input.rank());
    copy.axes.tables[n] = table.empty() ? -1 : static_cast<int64_t>(all.size());
    all.insert(all.end(), table.begin(), table.end());
    last_is_plain = table.empty();
  }
  copy.has_outside = std::find(all.begin(), all.end(), -1) != all.end();
  copy.offset = device.Add(all);
  return copy;
}

// 16 bytes that begin with the extrapolation value.
absl::StatusOr<std::vector<char>> FillOf(const ResizeSpec& spec, DType dtype) {
  WEFT_ASSIGN_OR_RETURN(const Tensor fill,
                        CastTensor(Tensor::Scalar<float>(spec.extrapolation_value), dtype));
  std::vector<char> bytes(16, 0);
  std::memcpy(bytes.data(), fill.raw_data(), static_cast<size_t>(DTypeBytes(dtype, 1)));
  return bytes;
}

class NearestKernel final : public Kernel {
 public:
  static absl::StatusOr<std::unique_ptr<Kernel>> Make(const PrepareContext& context,
                                                      const ResizeSpec& spec,
                                                      const std::vector<ResizeAxis>& axes) {
    auto kernel = std::make_unique<NearestKernel>();
    const DType dtype = context.InputDType(0);
    WEFT_ASSIGN_OR_RETURN(kernel->bytes_, ElementBytes(context, dtype));
    kernel->fill_.assign(16, 0);
    if (spec.extrapolation_value != 0) {
      WEFT_ASSIGN_OR_RETURN(kernel->fill_, FillOf(spec, dtype));
    }
    std::vector<std::vector<int64_t>> tables;
    for (const ResizeAxis& axis : axes) {
      ResizeTaps taps;
      if (!axis.IsIdentity()) taps = MakeResizeTaps(spec, axis);
      for (size_t i = 0; i < taps.outside.size(); ++i) {
        if (taps.outside[i]) taps.indices[i] = -1;
      }
      tables.push_back(std::move(taps.indices));
    }
    WEFT_ASSIGN_OR_RETURN(
        kernel->copy_, PlanTableCopy(context, context.InputShape(0), context.OutputShape(0), tables,
                                     kernel->table_));
    WEFT_RETURN_IF_ERROR(kernel->table_.Upload(context.device()));
    return kernel;
  }

  size_t retained_bytes() const override { return table_.bytes(); }

  absl::Status Run(const KernelContext& run) override {
    const auto* const tables = static_cast<const int64_t*>(table_.At(copy_.offset));
    return LaunchStatus(LaunchNearest(QueueOf(run), bytes_, copy_.axes, tables, fill_.data(),
                                      run.inputs[0], run.outputs[0]),
                        "Resize");
  }

 private:
  int bytes_ = 1;
  std::vector<char> fill_;
  TableCopy copy_;
  DeviceTable table_;
};

// ---- Weighted sums.

// The sums of one axis, with its tables' places.
struct AxisPass {
  AxisPassCall call;
  size_t starts = 0;
  size_t indices = 0;
  size_t weights = 0;
};

// What one element is the sum of.
struct TapLists {
  std::vector<int64_t> starts = {0};
  std::vector<int64_t> indices;
  std::vector<double> weights;
};

// Forward, without weights of zero.
TapLists ListsOf(const ResizeTaps& taps, int64_t outputs) {
  TapLists lists;
  for (int64_t i = 0; i < outputs; ++i) {
    for (int64_t k = i * taps.taps; k < (i + 1) * taps.taps; ++k) {
      if (taps.weights[k] == 0) continue;
      lists.indices.push_back(taps.indices[k]);
      lists.weights.push_back(taps.weights[k]);
    }
    lists.starts.push_back(static_cast<int64_t>(lists.indices.size()));
  }
  return lists;
}

// Backward: of each of `inputs` elements, those of the resized image that it was a part of.
TapLists TransposedListsOf(const ResizeTaps& taps, int64_t outputs, int64_t inputs) {
  std::vector<std::vector<std::pair<int64_t, double>>> parts(inputs);
  for (int64_t i = 0; i < outputs; ++i) {
    if (!taps.outside.empty() && taps.outside[i]) continue;
    for (int64_t k = i * taps.taps; k < (i + 1) * taps.taps; ++k) {
      if (taps.weights[k] != 0) parts[taps.indices[k]].emplace_back(i, taps.weights[k]);
    }
  }
  TapLists lists;
  for (const auto& part : parts) {
    for (const auto& [index, weight] : part) {
      lists.indices.push_back(index);
      lists.weights.push_back(weight);
    }
    lists.starts.push_back(static_cast<int64_t>(lists.indices.size()));
  }
  return lists;
}

// Passes one after the other, from x to y, both of the type of an image; sums in another where that
// one is neither float32 nor float64.
class PassesKernel final : public Kernel {
 public:
  PassesKernel(DType dtype, const Shape& input, const Shape& output)
      : dtype_(dtype),
        sums_(dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBfloat16
                  ? DType::kFloat32
                  : DType::kFloat64),
        shape_(input),
        inputs_(input.num_elements()),
        outputs_(output.num_elements()),
        largest_(std::max(inputs_, outputs_)) {}

  // `axis` of what there is becomes `output` sums.
  void AddPass(const TapLists& lists, int axis, int64_t output) {
    AxisPass pass;
    pass.call.outer = shape_.ProductOf(0, axis);
    pass.call.input = shape_.dim(axis);
    pass.call.output = output;
    pass.call.inner = shape_.ProductOf(axis + 1, shape_.rank());
    pass.starts = table_.Add(lists.starts);
    pass.indices = table_.Add(lists.indices);
    if (sums_ == DType::kFloat64) {
      pass.weights = table_.Add(lists.weights);
    } else {
      pass.weights = table_.Add(std::vector<float>(lists.weights.begin(), lists.weights.end()));
    }
    passes_.push_back(pass);
    shape_.set_dim(axis, output);
    largest_ = std::max(largest_, shape_.num_elements());
  }

  // Elements of the output that the tables of axes put outside become the extrapolation value.
  absl::Status AddOutside(const PrepareContext& context, const ResizeSpec& spec,
                          const std::vector<std::vector<int64_t>>& tables) {
    WEFT_ASSIGN_OR_RETURN(outside_,
                          PlanTableCopy(context, shape_, context.OutputShape(0), tables, table_));
    WEFT_ASSIGN_OR_RETURN(fill_, FillOf(spec, dtype_));
    return absl::OkStatus();
  }

  absl::Status Finish(Device& device) {
    const int64_t width = DTypeBytes(sums_, 1);
    for (size_t& buffer : buffers_) buffer = layout_.Add(static_cast<size_t>(largest_ * width));
    WEFT_RETURN_IF_ERROR(table_.Upload(device));
    for (AxisPass& pass : passes_) {
      pass.call.starts = table_.At(pass.starts);
      pass.call.indices = table_.At(pass.indices);
      pass.call.weights = table_.At(pass.weights);
    }
    return absl::OkStatus();
  }

  size_t workspace_bytes() const override { return layout_.total(); }
  size_t retained_bytes() const override { return table_.bytes(); }

  absl::Status Run(const KernelContext& run) override {
    const int code = Launches(run);
    return LaunchStatus(code, "Resize");
  }

 private:
  int Launches(const KernelContext& run) const {
    const LaunchQueue queue = QueueOf(run);
    const bool is_direct = dtype_ == sums_;
    void* const buffers[] = {cuda::At(run.workspace, buffers_[0]),
                             cuda::At(run.workspace, buffers_[1])};
    const void* from = run.inputs[0];
    int next = 0;
    if (!is_direct) {
      const int code = LaunchWidenImage(queue, dtype_, sums_, from, buffers[0], inputs_);
      if (code != 0) return code;
      from = buffers[0];
      next = 1;
    }
    for (size_t i = 0; i < passes_.size(); ++i) {
      const bool is_last = is_direct && i + 1 == passes_.size();
      void* const to = is_last ? run.outputs[0] : buffers[next];
      const int code = LaunchAxisPass(queue, sums_, passes_[i].call, from, to);
      if (code != 0) return code;
      from = to;
      next = 1 - next;
    }
    if (!is_direct) {
      const int code = LaunchNarrowImage(queue, dtype_, sums_, from, run.outputs[0], outputs_);
      if (code != 0) return code;
    }
    if (!outside_.has_outside) return 0;
    const auto* const tables = static_cast<const int64_t*>(table_.At(outside_.offset));
    return LaunchNearest(queue, static_cast<int>(DTypeBytes(dtype_, 1)), outside_.axes, tables,
                         fill_.data(), nullptr, run.outputs[0]);
  }

  const DType dtype_;
  const DType sums_;
  Shape shape_;
  const int64_t inputs_;
  const int64_t outputs_;
  int64_t largest_;
  std::vector<AxisPass> passes_;
  TableCopy outside_;
  std::vector<char> fill_;
  DeviceTable table_;
  WorkspaceLayout layout_;
  size_t buffers_[2] = {};
};

bool IsSummed(DType dtype) {
  return IsInteger(dtype)
             ? DTypeBits(dtype) >= 8
             : dtype == DType::kBool || dtype == DType::kFloat32 || dtype == DType::kFloat64 ||
                   dtype == DType::kFloat16 || dtype == DType::kBfloat16;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeWeightedResize(const PrepareContext& context,
                                                           const ResizeSpec& spec,
                                                           const std::vector<ResizeAxis>& axes) {
  const DType dtype = context.InputDType(0);
  if (!IsSummed(dtype)) {
    return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(dtype))));
  }
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(axes.size()); ++i) {
    if (!axes[i].IsIdentity()) order.push_back(i);
  }
  // What shrinks first.
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return axes[a].output * axes[b].input < axes[b].output * axes[a].input;
  });
  if (order.empty() || context.OutputShape(0).num_elements() == 0) {
    ResizeSpec plain = spec;
    plain.mode = ResizeMode::kNearest;
    return NearestKernel::Make(context, plain, axes);
  }
  auto kernel =
      std::make_unique<PassesKernel>(dtype, context.InputShape(0), context.OutputShape(0));
  std::vector<std::vector<int64_t>> outside(axes.size());
  bool has_outside = false;
  for (const int axis : order) {
    const ResizeTaps taps = MakeResizeTaps(spec, axes[axis]);
    kernel->AddPass(ListsOf(taps, axes[axis].output), axis, axes[axis].output);
    for (const bool is_outside : taps.outside) outside[axis].push_back(is_outside ? -1 : 0);
    has_outside = has_outside || !taps.outside.empty();
  }
  if (has_outside) WEFT_RETURN_IF_ERROR(kernel->AddOutside(context, spec, outside));
  WEFT_RETURN_IF_ERROR(kernel->Finish(context.device()));
  return kernel;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareResize(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ResizeSpec spec, ResizeSpec::Create(context.attributes()));
  WEFT_ASSIGN_OR_RETURN(const std::vector<ResizeAxis> axes,
                        ResizedAxesOf(context, spec, context.InputShape(0), 1));
  if (spec.mode == ResizeMode::kNearest) return NearestKernel::Make(context, spec, axes);
  return MakeWeightedResize(context, spec, axes);
}
WEFT_REGISTER_KERNEL("", "Resize", DeviceKind::kCuda, PrepareResize);

absl::StatusOr<std::unique_ptr<Kernel>> PrepareResizeGrad(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ResizeSpec spec, ResizeSpec::Create(context.attributes()));
  const Shape& dx = context.OutputShape(0);
  const Shape& dy = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const std::vector<ResizeAxis> axes, ResizedAxesOf(context, spec, dx, 2));
  for (int i = 0; i < dy.rank(); ++i) {
    if (static_cast<int>(axes.size()) == dy.rank() && axes[i].output == dy.dim(i)) continue;
    return context.InvalidArgument(absl::StrCat("dY of shape ", dy.ToString(),
                                                " is not what an image of shape ", dx.ToString(),
                                                " becomes"));
  }
  const DType dtype = context.InputDType(0);
  if (!IsSummed(dtype) || IsInteger(dtype) || dtype == DType::kBool) {
    return context.Unimplemented(absl::StrCat("no kernel for ", std::string(DTypeName(dtype))));
  }
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(axes.size()); ++i) {
    if (!axes[i].IsIdentity()) order.push_back(i);
  }
  // What shrinks on the way back first.
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return axes[a].output * axes[b].input > axes[b].output * axes[a].input;
  });
  if (order.empty() || dx.num_elements() == 0) {
    return NearestKernel::Make(context, spec, axes);
  }
  auto kernel = std::make_unique<PassesKernel>(dtype, dy, dx);
  for (const int axis : order) {
    const ResizeTaps taps = MakeResizeTaps(spec, axes[axis]);
    kernel->AddPass(TransposedListsOf(taps, axes[axis].output, axes[axis].input), axis,
                    axes[axis].input);
  }
  WEFT_RETURN_IF_ERROR(kernel->Finish(context.device()));
  return kernel;
}
WEFT_REGISTER_KERNEL("ai.weft", "ResizeGrad", DeviceKind::kCuda, PrepareResizeGrad);

}  // namespace
}  // namespace weft::cuda
