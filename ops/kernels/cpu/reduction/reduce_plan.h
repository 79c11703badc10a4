// ReducePlan: how a reduction walks its input.
#ifndef WEFT_OPS_KERNELS_CPU_REDUCTION_REDUCE_PLAN_H_
#define WEFT_OPS_KERNELS_CPU_REDUCTION_REDUCE_PLAN_H_

#include <cstdint>
#include <vector>

#include "tensor/shape.h"

namespace weft::cpu {

// Neighbouring axes of one fate are merged, axes of size one are gone. Element o of the output is
// the reduction over r < rows and i < run.size of input[KeptOffset(o) + RowOffset(r) + i *
// run.stride].
struct ReducePlan {
  struct Axis {
    int64_t size = 1;
    int64_t stride = 1;
  };
  std::vector<Axis> kept;  // major first
  std::vector<Axis> outer_reduced;
  Axis run;  // the innermost reduced axis
  int64_t outputs = 1;
  int64_t rows = 1;

  static ReducePlan Make(const Shape& input, const std::vector<bool>& reduced);

  bool reduces_nothing() const { return rows == 1 && run.size == 1; }
  // The elements of the last kept axis lie side by side.
  bool has_columns() const { return !kept.empty() && kept.back().stride == 1; }
  int64_t KeptOffset(int64_t output) const { return Offset(kept, output); }
  int64_t RowOffset(int64_t row) const { return Offset(outer_reduced, row); }

 private:
  static int64_t Offset(const std::vector<Axis>& axes, int64_t index) {
    int64_t offset = 0;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      offset += index % axis->size * axis->stride;
      index /= axis->size;
    }
    return offset;
  }
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_REDUCTION_REDUCE_PLAN_H_
