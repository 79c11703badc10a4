#include "ops/kernels/cuda/pool/pool_geometry.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// In-plane arithmetic is of 32 bits.
constexpr int64_t kLargestPlane = int64_t{1} << 30;

bool FitsPlane(const WindowAxis& axis) {
  const int64_t reach = axis.kernel * axis.dilation + axis.pad_begin + axis.pad_end + axis.input;
  const int64_t last = axis.output * axis.stride;
  return reach < kLargestPlane && last < kLargestPlane && axis.pad_begin > -kLargestPlane;
}

}  // namespace

absl::StatusOr<PoolGeometry> GeometryOf(const PrepareContext& context, int64_t planes,
                                        const std::vector<WindowAxis>& axes) {
  if (axes.size() > 3) {
    return context.Unimplemented("a pool on CUDA devices has at most three image axes");
  }
  PoolGeometry pool;
  pool.planes = planes;
  int64_t input = 1;
  int64_t output = 1;
  int64_t window = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    const WindowAxis& axis = axes[i];
    input *= axis.input;
    output *= axis.output;
    window *= axis.kernel;
    if (!FitsPlane(axis) || input >= kLargestPlane || output >= kLargestPlane ||
        window >= kLargestPlane) {
      return context.Unimplemented("a pool on CUDA devices has planes of less than 2^30 elements");
    }
    const auto narrow = [](int64_t n) { return static_cast<int32_t>(n); };
    pool.axis[3 - axes.size() + i] = {
        narrow(axis.input),    narrow(axis.output),    narrow(axis.kernel), narrow(axis.stride),
        narrow(axis.dilation), narrow(axis.pad_begin), narrow(axis.pad_end)};
  }
  return pool;
}

absl::StatusOr<PoolGeometry> PoolOf(const PrepareContext& context, const Shape& x, const Shape& y) {
  const auto window =
      WindowSpec::Create(context.attributes(), context.attributes().Ints("kernel_shape"));
  if (!window.ok()) return context.InvalidArgument(std::string(window.status().message()));
  const auto axes = window->ResolveAll(x);
  if (!axes.ok()) return context.InvalidArgument(std::string(axes.status().message()));
  Shape expected{x.dim(0), x.dim(1)};
  for (const WindowAxis& axis : *axes) expected.AddDim(axis.output);
  if (!(expected == y)) {
    return context.InvalidArgument(absl::StrCat("a pool of ", x.ToString(), " gives ",
                                                expected.ToString(), ", not ", y.ToString()));
  }
  return GeometryOf(context, x.dim(0) * x.dim(1), *axes);
}

}  // namespace weft::cuda
