// BroadcastPlan: the host's side of ops/kernels/cuda/blocks/broadcast.h. For factories.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_BROADCAST_PLAN_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_BROADCAST_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/broadcast.h"
#include "tensor/shape.h"

namespace weft::cuda {

// How a kernel walks operands that broadcast to one output. Value type.
struct BroadcastPlan {
  struct Axis {
    int64_t size = 1;
    std::vector<int64_t> strides;  // in elements, per operand; 0 where it is broadcast
  };
  // Minor first, at least one. No axis has one element unless it is the only one; axes along which
  // every operand goes on as before are one axis.
  std::vector<Axis> axes;
  int64_t elements = 1;  // of the output

  // Row-major operands. REQUIRES: each broadcasts to `output`.
  static BroadcastPlan Make(const Shape& output, const std::vector<Shape>& operands);
  // Any strides that are not negative (transposes, slices); `axes` are major first. Its offsets may
  // need int64_t where its elements do not: see Reach. REQUIRES: each axis has `operands` strides.
  static BroadcastPlan OfStrides(const std::vector<Axis>& axes, size_t operands);

  // True if a packet of `width` neighbours of the output is, in each operand, a packet at a
  // multiple of `width` elements, or `width` times one element.
  bool HasPackets(int width) const;
  // Offset of the last element of an operand that is used, from its first.
  int64_t Reach(size_t operand) const;

  // REQUIRES: axes.size() <= kMaxBroadcastAxes, as many operands or fewer, and indices that fit.
  template <int kOperands, typename Index = int32_t>
  BroadcastMap<kOperands, Index> Map() const {
    BroadcastMap<kOperands, Index> map;
    map.axes = static_cast<int>(axes.size());
    for (size_t d = 0; d < axes.size(); ++d) {
      map.sizes[d] = FastDivisor<Index>(static_cast<Index>(axes[d].size > 0 ? axes[d].size : 1));
      for (size_t k = 0; k < axes[d].strides.size(); ++k) {
        map.strides[d][k] = static_cast<Index>(axes[d].strides[k]);
      }
    }
    return map;
  }
};

// A part of a plan that starts at these elements.
struct BroadcastPiece {
  BroadcastPlan plan;
  int64_t output = 0;
  std::vector<int64_t> operands;
};

// A launch with fewer elements has indices that are int32_t.
inline constexpr int64_t kPieceLimit = int64_t{1} << 31;

// Parts that cover the output of a plan of Make, each contiguous in it and with at most `limit`
// elements. One, if the plan is small enough; none without elements. Offsets in operands are
// smaller than a part's elements. Cuts of an axis fall on multiples of 64 of its elements where
// they can.
std::vector<BroadcastPiece> Pieces(const BroadcastPlan& plan, int64_t limit = kPieceLimit - 1);

// What factories take for the limit: kPieceLimit - 1, but in tests of small tensors in many pieces.
int64_t PieceLimitOfFactories();
void SetPieceLimitForTesting(int64_t limit);

// The pieces of a node whose inputs broadcast to its output 0. Unimplemented if the plan has more
// than kMaxBroadcastAxes axes.
absl::StatusOr<std::vector<BroadcastPiece>> PiecesOfInputs(const PrepareContext& context);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_BROADCAST_PLAN_H_
