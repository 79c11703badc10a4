// Which instruction sets Highway compiles vector code for: include before any of its headers. SSSE3
// is left out, since it costs compile time and no machine of the last decade stops there.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_SIMD_TARGETS_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_SIMD_TARGETS_H_

#define HWY_DISABLED_TARGETS HWY_SSSE3

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_SIMD_TARGETS_H_
