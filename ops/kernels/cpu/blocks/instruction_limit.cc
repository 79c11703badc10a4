// Highway's kernels use no instructions beyond those of oneDNN: DNNL_MAX_CPU_ISA limits both. So
// the level that the handshake compares is that of all kernels, and one machine can test several.
#include "hwy/targets.h"
#include "platform/cpu_info.h"

namespace weft {
namespace {

// Better targets have lower bits.
[[maybe_unused]] const bool is_limited = [] {
  const InstructionSet level = EffectiveInstructionSet();
  if (level >= InstructionSet::kAvx512Core) return false;
  hwy::DisableTargets((level >= InstructionSet::kAvx2 ? HWY_AVX2 : HWY_SSE4) - 1);
  return true;
}();

}  // namespace
}  // namespace weft
