// TopK: selects with a partial sort of positions. Of equal elements the one that comes first wins.
#include <algorithm>
#include <numeric>

#include "ops/defs/rules/rules.h"
#include "ops/kernels/cpu/blocks/axis_lines.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"

namespace weft::cpu {
namespace {

// Whether element `a` comes before element `b`: NaN counts as larger than all numbers.
template <typename C>
bool Before(C a, C b, bool largest) {
  if (a != a || b != b) return largest ? a != a && b == b : a == a && b != b;
  return largest ? a > b : a < b;
}

// The first `k` of `order`, positions on the line, become those of the result, sorted.
template <typename T>
void Select(const T* line, int64_t size, int64_t stride, int64_t k, bool largest, int64_t* order) {
  const auto before = [=](int64_t a, int64_t b) {
    const ComputeType<T> x = Load(line[a * stride]);
    const ComputeType<T> y = Load(line[b * stride]);
    if (Before(x, y, largest)) return true;
    if (Before(y, x, largest)) return false;
    return a < b;
  };
  std::iota(order, order + size, int64_t{0});
  if (k < size) std::nth_element(order, order + k, order + size, before);
  std::sort(order, order + k, before);
}

template <typename T>
std::unique_ptr<Kernel> MakeTopK(const PrepareContext& context, const AxisLines& lines, int64_t k) {
  const bool largest = context.attributes().Int("largest", 1) != 0;
  const bool has_values = context.HasOutput(0);
  const bool has_indices = context.HasOutput(1);
  const int threads = context.threads();
  const int workers = UsefulThreads(threads, lines.lines, 10 * static_cast<double>(lines.size));
  const int64_t share = (lines.lines + workers - 1) / workers;
  return MakeKernel(
      [=](const KernelContext& run) {
        if (k == 0 || lines.lines == 0) return absl::OkStatus();
        const T* x = Input<T>(run, 0);
        T* values = has_values ? Output<T>(run, 0) : nullptr;
        int64_t* indices = has_indices ? Output<int64_t>(run, 1) : nullptr;
        const AxisLines results{lines.lines, k, lines.stride};
        // One item per worker, which has a workspace of its own.
        ParallelFor(workers, workers, 1e9, 1, [&](int64_t begin, int64_t end) {
          for (int64_t w = begin; w < end; ++w) {
            int64_t* order = static_cast<int64_t*>(run.workspace) + w * lines.size;
            for (int64_t l = w * share; l < std::min(lines.lines, (w + 1) * share); ++l) {
              const T* line = x + lines.Start(l);
              Select(line, lines.size, lines.stride, k, largest, order);
              const int64_t to = results.Start(l);
              for (int64_t i = 0; i < k; ++i) {
                if (values != nullptr)
                  values[to + i * lines.stride] = line[order[i] * lines.stride];
                if (indices != nullptr) indices[to + i * lines.stride] = order[i];
              }
            }
          }
        });
        return absl::OkStatus();
      },
      static_cast<size_t>(workers) * lines.size * sizeof(int64_t));
}

absl::StatusOr<std::unique_ptr<Kernel>> PrepareTopK(const PrepareContext& context) {
  const Shape& shape = context.InputShape(0);
  const int axis = ConcreteAxis(context, "axis", -1, shape.rank());
  const int output = context.HasOutput(0) ? 0 : 1;
  const int64_t k = context.OutputShape(output).dim(axis);
  if (k > shape.dim(axis)) {
    return context.InvalidArgument(
        absl::StrCat("K is ", k, ", more than the ", shape.dim(axis), " elements of axis ", axis));
  }
  return PrepareByDType(context, context.InputDType(0), NumericTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          return MakeTopK<decltype(zero)>(context, AxisLines::Make(shape, axis), k);
                        });
}

WEFT_REGISTER_KERNEL("", "TopK", DeviceKind::kCpu, PrepareTopK);

}  // namespace
}  // namespace weft::cpu
