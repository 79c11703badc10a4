// What a generated body is launched with. The text of a region knows types and shapes; these are
// the addresses, in the memory of the queue's device.
#ifndef WEFT_OPS_KERNELS_CUDA_FUSION_GENERATED_ARGUMENTS_H_
#define WEFT_OPS_KERNELS_CUDA_FUSION_GENERATED_ARGUMENTS_H_

namespace weft::cuda {

inline constexpr int kMaxRegionInputs = 24;
inline constexpr int kMaxRegionOutputs = 8;

// In order of the region's body. Plain values: the only parameter of the kernel.
struct GeneratedArguments {
  const void* x[kMaxRegionInputs];
  void* y[kMaxRegionOutputs];
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_FUSION_GENERATED_ARGUMENTS_H_
