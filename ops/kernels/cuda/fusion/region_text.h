// Generates the CUDA C++ of a region.
#ifndef WEFT_OPS_KERNELS_CUDA_FUSION_REGION_TEXT_H_
#define WEFT_OPS_KERNELS_CUDA_FUSION_REGION_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

// A value. The text has the struct weft::cuda::GeneratedBody, a body over `Gpu` as
// ops/kernels/cuda/language/gpu.h describes it, which is made of GeneratedArguments; and for nvcc
// the kernel kGeneratedKernel, which runs it.
struct RegionText {
  std::string text;
  LaunchGrid grid;
  // Neighbours that a thread reads at once: 1 without packets.
  int width = 1;
};

// The text of the body of a fused node, whose inputs and outputs are x and y of the arguments, in
// order. The same for equal bodies, whatever their names. Unimplemented with the node where the
// table does not have it (region_ops.h), and where the region has more operands than arguments.
absl::StatusOr<RegionText> GenerateRegion(const Graph& body);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_FUSION_REGION_TEXT_H_
