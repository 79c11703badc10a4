// MaxUnpool and Col2Im.
#include <algorithm>
#include <complex>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/pool/unpool_shape.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/blocks/strided_copy.h"
#include "ops/kernels/cpu/blocks/widened.h"
#include "ops/kernels/cpu/blocks/window_rows.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

// ---- MaxUnpool. Indices count in the image that the windows cover, which lies at the beginning of
// the output.

// Where element `index` of an image lies in a larger one; -1: beyond it.
int64_t Moved(const Shape& from, const Shape& to, int64_t index) {
  int64_t result = 0;
  int64_t stride = 1;
  for (int i = to.rank() - 1; i >= 0; --i) {
    const int64_t position = index % from.dim(i);
    if (position >= to.dim(i)) return -1;
    index /= from.dim(i);
    result += position * stride;
    stride *= to.dim(i);
  }
  return result;
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareMaxUnpool(const PrepareContext& context) {
  const auto image = UnpooledShape(context.attributes(), context.InputShape(0));
  if (!image.ok()) return context.InvalidArgument(std::string(image.status().message()));
  const Shape from = *image;
  const Shape to = context.OutputShape(0);
  const bool same = from == to;
  WEFT_ASSIGN_OR_RETURN(const int bytes, ElementBytes(context, context.InputDType(0)));
  const int64_t elements = context.InputShape(0).num_elements();
  const std::string name = context.node().name;
  return MakeKernel([=](const KernelContext& run) -> absl::Status {
    char* const y = static_cast<char*>(run.outputs[0]);
    const char* const x = static_cast<const char*>(run.inputs[0]);
    const int64_t* const indices = Input<int64_t>(run, 1);
    if (to.num_elements() > 0) std::memset(y, 0, static_cast<size_t>(to.num_elements() * bytes));
    for (int64_t i = 0; i < elements; ++i) {
      if (indices[i] < 0 || indices[i] >= from.num_elements()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "node '", name, "' (MaxUnpool): I[", i, "] is ", indices[i], ", the image ",
            from.ToString(), " has ", from.num_elements(), " elements"));
      }
      const int64_t position = same ? indices[i] : Moved(from, to, indices[i]);
      if (position >= 0) std::memcpy(y + position * bytes, x + i * bytes, bytes);
    }
    return absl::OkStatus();
  });
}

// ---- Col2Im.

struct ColumnPlan {
  std::vector<WindowAxis> axes;  // of the image; output = blocks
  int64_t planes = 0;            // samples and channels
  int64_t image = 1;
  int64_t blocks = 1;
  int64_t block = 1;
  int threads = 1;
};

absl::StatusOr<ColumnPlan> PlanColumns(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> image, RequiredInts(context, 1));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> block, RequiredInts(context, 2));
  const auto window = WindowSpec::Create(context.attributes(), block);
  if (!window.ok()) return context.InvalidArgument(std::string(window.status().message()));
  Shape shape{1, 1};
  for (const int64_t size : image) shape.AddDim(size);
  const auto axes = window->ResolveAll(shape);
  if (!axes.ok()) return context.InvalidArgument(std::string(axes.status().message()));
  const Shape& x = context.InputShape(0);
  ColumnPlan plan;
  plan.axes = *axes;
  for (const WindowAxis& axis : *axes) {
    plan.image *= axis.input;
    plan.blocks *= axis.output;
    plan.block *= axis.kernel;
  }
  if (x.dim(2) != plan.blocks || x.dim(1) % plan.block != 0) {
    return context.InvalidArgument(absl::StrCat("input ", x.ToString(), " does not hold the ",
                                                plan.blocks, " blocks of ", plan.block,
                                                " elements that the image has"));
  }
  plan.planes = x.dim(0) * (x.dim(1) / plan.block);
  plan.threads = context.threads();
  return plan;
}

template <typename T>
std::unique_ptr<Kernel> MakeCol2Im(const ColumnPlan& plan) {
  return MakeKernel([plan](const KernelContext& run) {
    const double nanoseconds = 0.5 * static_cast<double>(plan.blocks * plan.block);
    ParallelFor(plan.threads, plan.planes, nanoseconds, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* const columns =
            static_cast<const T*>(run.inputs[0]) + i * plan.block * plan.blocks;
        T* const image = static_cast<T*>(run.outputs[0]) + i * plan.image;
        std::fill_n(image, plan.image, T(0));
        ForEachWindowRow(plan.axes, [&](const WindowRow& row) {
          const T* const column = columns + row.tap * plan.blocks + row.output;
          for (int64_t o = row.first; o < row.last; ++o) {
            T& pixel = image[row.input + o * row.stride];
            pixel = static_cast<T>(pixel + column[o]);
          }
        });
      }
    });
    return absl::OkStatus();
  });
}

using ColumnTypes = TypeList<float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                             uint32_t, uint64_t, bool>;

absl::StatusOr<std::unique_ptr<Kernel>> PrepareCol2Im(const PrepareContext& context) {
  WEFT_ASSIGN_OR_RETURN(const ColumnPlan plan, PlanColumns(context));
  const DType dtype = context.InputDType(0);
  if (dtype == DType::kComplex64) return MakeCol2Im<std::complex<float>>(plan);
  if (dtype == DType::kComplex128) return MakeCol2Im<std::complex<double>>(plan);
  return PrepareByDType(context, dtype, ColumnTypes{},
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeCol2Im<decltype(zero)>(plan);
                        });
}

}  // namespace

WEFT_REGISTER_KERNEL("", "MaxUnpool", DeviceKind::kCpu, PrepareMaxUnpool);
WEFT_REGISTER_KERNEL("", "Col2Im", DeviceKind::kCpu, Widened(PrepareCol2Im));

}  // namespace weft::cpu
