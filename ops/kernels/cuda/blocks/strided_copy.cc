#include "ops/kernels/cuda/blocks/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// Indices of 32 bits stay below: threads step over the end by less than that.
constexpr int64_t kSmallLimit = int64_t{1} << 30;
// Matrices with fewer rows or columns leave most of a tile empty.
constexpr int64_t kSmallestTransposed = 16;

// Without axes of one element; major first by the target's strides; neighbours that go on as before
// are one axis.
std::vector<CopyAxis> Merged(std::vector<CopyAxis> axes) {
  axes.erase(
      std::remove_if(axes.begin(), axes.end(), [](const CopyAxis& axis) { return axis.size == 1; }),
      axes.end());
  std::stable_sort(axes.begin(), axes.end(), [](const CopyAxis& a, const CopyAxis& b) {
    return std::abs(a.to_stride) > std::abs(b.to_stride);
  });
  std::vector<CopyAxis> merged;
  for (const CopyAxis& axis : axes) {
    if (!merged.empty() && merged.back().from_stride == axis.from_stride * axis.size &&
        merged.back().to_stride == axis.to_stride * axis.size) {
      merged.back() = {merged.back().size * axis.size, axis.from_stride, axis.to_stride};
    } else {
      merged.push_back(axis);
    }
  }
  return merged;
}

// Whether `parts` elements, side by side at both ends, may be one unit.
bool FormUnits(const std::vector<CopyAxis>& axes, int64_t from, int64_t to, int64_t parts) {
  if (parts == 1) return true;
  if (axes.empty() || from % parts != 0 || to % parts != 0) return false;
  const CopyAxis& inner = axes.back();
  if (inner.from_stride != 1 || inner.to_stride != 1 || inner.size % parts != 0) return false;
  return std::all_of(axes.begin(), axes.end() - 1, [parts](const CopyAxis& axis) {
    return axis.from_stride % parts == 0 && axis.to_stride % parts == 0;
  });
}

void TakeUnits(std::vector<CopyAxis>& axes, CopyPlan& plan, int64_t parts) {
  if (parts == 1) return;
  plan.from /= parts;
  plan.to /= parts;
  for (CopyAxis& axis : axes) {
    if (&axis == &axes.back()) break;
    axis.from_stride /= parts;
    axis.to_stride /= parts;
  }
  axes.back().size /= parts;
  if (axes.back().size == 1) axes.pop_back();
}

// Whether 16 bytes of the target are one unit of the source each.
bool Repeats(const std::vector<CopyAxis>& axes, const CopyPlan& plan, int64_t width) {
  if (axes.empty() || width < 2 || plan.to % width != 0) return false;
  const CopyAxis& inner = axes.back();
  if (inner.from_stride != 0 || inner.to_stride != 1 || inner.size % width != 0) return false;
  return std::all_of(axes.begin(), axes.end() - 1,
                     [width](const CopyAxis& axis) { return axis.to_stride % width == 0; });
}

// The axis along which the source's units are neighbours, if it is worth tiles; else end().
std::vector<CopyAxis>::iterator TransposedAxis(std::vector<CopyAxis>& axes) {
  if (axes.empty()) return axes.end();
  const CopyAxis& inner = axes.back();
  if (inner.to_stride != 1 || inner.size < kSmallestTransposed) return axes.end();
  if (inner.from_stride == 0 || inner.from_stride == 1) return axes.end();
  return std::find_if(axes.begin(), axes.end(), [](const CopyAxis& axis) {
    return axis.from_stride == 1 && axis.size >= kSmallestTransposed;
  });
}

// Whether the elements of a tile's line may be read and written by `pack`.
bool HavePacks(const std::vector<CopyAxis>& matrices, const CopyPlan& plan, int64_t pack) {
  const auto fits = [pack](int64_t n) { return n % pack == 0; };
  if (!fits(plan.from) || !fits(plan.to) || !fits(plan.rows) || !fits(plan.columns)) return false;
  if (!fits(plan.from_stride) || !fits(plan.to_stride)) return false;
  return std::all_of(matrices.begin(), matrices.end(), [&](const CopyAxis& axis) {
    return fits(axis.from_stride) && fits(axis.to_stride);
  });
}

// The widest access that tiles have a kernel for and the matrices allow, in units. By squares
// (SquareTransposeBody) go matrices that fill a tile.
int PackOfTiles(const std::vector<CopyAxis>& matrices, const CopyPlan& plan) {
  constexpr int64_t kSquares = 16;
  for (const int bytes : {16, 8, 4}) {
    const int pack = bytes / plan.unit;
    if (pack < 2 || !HavePacks(matrices, plan, pack)) continue;
    if (bytes == 4) return pack;
    const bool has_kernel = bytes == 16 ? plan.unit > 1 : plan.unit == 2;
    if (has_kernel && std::min(plan.rows, plan.columns) >= kSquares * pack) return pack;
  }
  return 1;
}

template <typename Index>
BroadcastMap<2, Index> CopyMap(const std::vector<CopyAxis>& axes) {
  BroadcastMap<2, Index> map;
  map.axes = std::max(static_cast<int>(axes.size()), 1);
  for (size_t d = 0; d < axes.size(); ++d) {
    const CopyAxis& axis = axes[axes.size() - 1 - d];
    map.sizes[d] = FastDivisor<Index>(static_cast<Index>(axis.size));
    map.strides[d][0] = static_cast<Index>(axis.from_stride);
    map.strides[d][1] = static_cast<Index>(axis.to_stride);
  }
  return map;
}

// Sets the count and the map; `others`: elements, and their reach, that the map does not walk.
void SetMap(const std::vector<CopyAxis>& axes, CopyPlan& plan, int64_t others) {
  plan.count = 1;
  int64_t reach = others;
  for (const CopyAxis& axis : axes) {
    plan.count *= axis.size;
    const int64_t stride = std::max(std::abs(axis.from_stride), std::abs(axis.to_stride));
    reach += stride * (axis.size - 1);
  }
  plan.has_small_indices = reach < kSmallLimit && plan.count < kSmallLimit;
  if (plan.has_small_indices) {
    plan.small = CopyMap<int32_t>(axes);
  } else {
    plan.large = CopyMap<int64_t>(axes);
  }
}

}  // namespace

absl::StatusOr<int> ElementBytes(const PrepareContext& context, DType dtype) {
  const int bits = DTypeBits(dtype);
  if (bits >= 8) return bits / 8;
  return context.Unimplemented(absl::StrCat("no kernel for CUDA devices moves elements of ",
                                            std::string(DTypeName(dtype)),
                                            ", which are not whole bytes"));
}

absl::StatusOr<CopyPlan> PlanCopy(std::vector<CopyAxis> axes, int element_bytes,
                                  int64_t from_offset, int64_t to_offset, int largest_unit) {
  CopyPlan plan;
  plan.from = from_offset;
  plan.to = to_offset;
  for (const CopyAxis& axis : axes) {
    if (axis.size == 0) return plan;
  }
  axes = Merged(std::move(axes));
  int64_t parts = std::max(largest_unit / element_bytes, 1);
  while (!FormUnits(axes, plan.from, plan.to, parts)) parts /= 2;
  TakeUnits(axes, plan, parts);
  plan.unit = static_cast<int>(parts) * element_bytes;
  plan.alignment = plan.unit;
  if (static_cast<int>(axes.size()) > kMaxBroadcastAxes) {
    return absl::UnimplementedError(
        absl::StrCat("no kernel for CUDA devices copies along ", axes.size(),
                     " axes that cannot be merged; the limit is ", kMaxBroadcastAxes));
  }
  const auto transposed = TransposedAxis(axes);
  if (transposed != axes.end()) {
    plan.way = CopyWay::kTransposes;
    plan.rows = transposed->size;
    plan.to_stride = transposed->to_stride;
    plan.columns = axes.back().size;
    plan.from_stride = axes.back().from_stride;
    axes.pop_back();
    axes.erase(transposed);
    const int64_t reach = std::abs(plan.from_stride) * plan.columns + plan.rows +
                          std::abs(plan.to_stride) * plan.rows + plan.columns;
    SetMap(axes, plan, reach);
    if (largest_unit == 16) plan.pack = PackOfTiles(axes, plan);
    plan.alignment = plan.unit * plan.pack;
  } else if (largest_unit == 16 && Repeats(axes, plan, 16 / plan.unit)) {
    const int64_t width = 16 / plan.unit;
    plan.way = CopyWay::kRepeats;
    plan.alignment = 16;
    for (CopyAxis& axis : axes) {
      if (&axis != &axes.back()) axis.to_stride /= width;
    }
    axes.back().size /= width;
    if (axes.back().size == 1) axes.pop_back();
    SetMap(axes, plan, 0);
  } else {
    SetMap(axes, plan, 0);
  }
  return plan;
}

absl::StatusOr<StridedCopy> StridedCopy::Make(const PrepareContext& context,
                                              std::vector<CopyAxis> axes, int element_bytes,
                                              int64_t from_offset, int64_t to_offset) {
  StridedCopy copy;
  copy.bytes_ = element_bytes;
  for (const CopyAxis& axis : axes) copy.bytes_ *= axis.size;
  const auto wide = PlanCopy(axes, element_bytes, from_offset, to_offset, 16);
  if (!wide.ok()) return context.Unimplemented(std::string(wide.status().message()));
  const auto narrow =
      PlanCopy(std::move(axes), element_bytes, from_offset, to_offset, element_bytes);
  if (!narrow.ok()) return context.Unimplemented(std::string(narrow.status().message()));
  copy.wide_ = *wide;
  copy.narrow_ = *narrow;
  return copy;
}

int StridedCopy::Run(LaunchQueue queue, const void* from, void* to) const {
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  const bool is_aligned = addresses % static_cast<uintptr_t>(wide_.alignment) == 0;
  return LaunchCopy(queue, is_aligned ? wide_ : narrow_, from, to);
}

}  // namespace weft::cuda
