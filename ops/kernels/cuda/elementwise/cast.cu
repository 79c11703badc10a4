// Cast. What models cast much has a kernel of its own; one kernel does all other pairs.
#include "ops/kernels/cuda/elementwise/cast_body.h"
#include "ops/kernels/cuda/elementwise/cast_ops.h"
#include "ops/kernels/cuda/elementwise/map_grid.h"

namespace weft::cuda {
namespace {

template <typename Op, typename From, typename To>
int LaunchOneCast(const CastCall& call) {
  return LaunchMap<Op, From, To>(call.queue, call.x, call.y, call.count, Op{});
}

template <typename From, typename... Tos>
CastLaunch FindCastTo(DType to, Types<Tos...> types) {
  return ByType<CastLaunch>(to, types, [](auto type) -> CastLaunch {
    using To = decltype(type);
    return LaunchOneCast<CastOp<To>, From, To>;
  });
}

CastLaunch FindFrequentCast(DType from, DType to) {
  switch (from) {
    case DType::kFloat32:
      return FindCastTo<float>(to, Types<Float16, Bfloat16, double>());
    case DType::kFloat16:
      return FindCastTo<Float16>(to, Types<float>());
    case DType::kBfloat16:
      return FindCastTo<Bfloat16>(to, Types<float>());
    case DType::kFloat64:
      return FindCastTo<double>(to, Types<float>());
    case DType::kInt32:
      return FindCastTo<int32_t>(to, Types<float, int64_t>());
    case DType::kInt64:
      return FindCastTo<int64_t>(to, Types<float, int32_t>());
    case DType::kBool:
    case DType::kUint8:  // bool is 0 and 1
      return FindCastTo<uint8_t>(to, Types<float, Float16, Bfloat16>());
    default:
      return nullptr;
  }
}

int LaunchAnyCast(const CastCall& call) {
  return Launch<kMapThreads>(call.queue, MapGrid(call.count),
                             AnyCastBody{call.x, call.y, call.count, call.from, call.to});
}

bool IsNumberOrBool(DType dtype) {
  return dtype == DType::kBool ||
         ByType<bool>(dtype, Numbers(), [](auto /*type*/) { return true; });
}

}  // namespace

CastLaunch FindCast(DType from, DType to) {
  if (!IsNumberOrBool(from) || !IsNumberOrBool(to)) return nullptr;
  const CastLaunch launch = FindFrequentCast(from, to);
  return launch != nullptr ? launch : LaunchAnyCast;
}

CastLaunch FindCutOffCast(DType from) {
  return ByType<CastLaunch>(from, Floats(), [](auto type) -> CastLaunch {
    return LaunchOneCast<CutOffOp, decltype(type), Bfloat16>;
  });
}

}  // namespace weft::cuda
