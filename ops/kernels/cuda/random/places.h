// Places of a node's elements in its global tensor, for factories.
#ifndef WEFT_OPS_KERNELS_CUDA_RANDOM_PLACES_H_
#define WEFT_OPS_KERNELS_CUDA_RANDOM_PLACES_H_

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/random/random_calls.h"
#include "ops/random_draws.h"

namespace weft::cuda {

// Of a local tensor of this shape at this slice; `first` is without FirstPlace. Unimplemented if it
// is cut along more axes than a map has.
absl::StatusOr<PlaceMap> PlacesOf(const PrepareContext& context, const Shape& shape,
                                  const OperandSlice& slice);

// The key of a run, which reads the step on the device where the run has it there.
StepKey StepKeyOf(const RandomKey& node, const KernelContext& run);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RANDOM_PLACES_H_
