// The sampling of DeformConv, and its gradient.
#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/conv/deform_body.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

constexpr int kDeformThreads = 128;
constexpr int64_t kDeformBlocks = int64_t{1} << 17;

LaunchGrid DeformGrid(int64_t threads) {
  return {.blocks = Blocks(threads, kDeformThreads, kDeformBlocks), .threads = kDeformThreads};
}

int64_t TapsOfAll(const DeformCall& call) { return call.samples * call.fields() * call.windows; }

}  // namespace

int LaunchDeformColumns(LaunchQueue queue, const DeformCall& call, void* columns) {
  const int64_t threads =
      TapsOfAll(call) * ((call.channels + kDeformChannels - 1) / kDeformChannels);
  return LaunchByType(call.x.dtype, FloatLaunches(), [&](auto zero) {
    using T = decltype(zero);
    return Launch<kDeformThreads>(queue, DeformGrid(threads),
                                  DeformColumnsBody<T>{static_cast<T*>(columns), threads, call});
  });
}

int LaunchDeformCorners(LaunchQueue queue, const DeformCall& call, uint32_t* keys,
                        double* weights) {
  return Launch<kDeformThreads>(queue, DeformGrid(TapsOfAll(call)),
                                DeformCornersBody{keys, weights, call});
}

int LaunchDeformSlopes(LaunchQueue queue, const DeformCall& call, const RealInput& dcolumns,
                       const RealOutput& doffset, const RealOutput& dmask) {
  return Launch<kDeformThreads>(queue, DeformGrid(TapsOfAll(call)),
                                DeformSlopesBody{dcolumns, doffset, dmask, call});
}

}  // namespace weft::cuda
