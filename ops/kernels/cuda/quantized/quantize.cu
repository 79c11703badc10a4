// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.
#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/quantized/quantize_body.h"
#include "ops/kernels/cuda/quantized/quantize_launch.h"
#include "ops/kernels/cuda/quantized/quantized_grid.h"

namespace weft::cuda {
namespace {

LaunchGrid CodesGrid(int64_t count) {
  return QuantizedGrid((count + kCodesAtOnce - 1) / kCodesAtOnce);
}

template <typename R, typename Index>
int LaunchDequantizeTo(const QuantizeCall& call) {
  const int64_t count = call.grid.elements();
  return Launch<kQuantizedThreads>(
      call.queue, CodesGrid(count),
      DequantizeBody<R, Index>{.x = call.x,
                               .scales = call.scales,
                               .zeros = call.zeros,
                               .y = static_cast<R*>(call.y),
                               .count = count,
                               .has_packets = AllowsPackets(call.y, sizeof(R) * kCodesAtOnce),
                               .scale_dtype = call.scale_dtype,
                               .map = ScaleMap<Index>::Of(call.grid),
                               .reader = call.reader});
}

template <typename Index>
int LaunchQuantizeBy(const QuantizeCall& call) {
  const int64_t count = call.grid.elements();
  return Launch<kQuantizedThreads>(
      call.queue, CodesGrid(count),
      QuantizeBody<Index>{.x = call.x,
                          .scales = call.scales,
                          .zeros = call.zeros,
                          .y = call.y,
                          .count = count,
                          .has_packets = AllowsPackets(call.y, kCodesAtOnce),
                          .scale_dtype = call.scale_dtype,
                          .precision = call.precision,
                          .map = ScaleMap<Index>::Of(call.grid),
                          .reader = call.reader,
                          .zero_reader = call.zero_reader,
                          .writer = call.writer});
}

}  // namespace

int LaunchDequantize(const QuantizeCall& call, DType y) {
  if (call.grid.elements() == 0) return 0;
  return LaunchByType(y, LaunchTypes<float, Float16, Bfloat16>(), [&](auto zero) {
    using R = decltype(zero);
    if (HasShortIndices(call.grid.elements())) return LaunchDequantizeTo<R, int32_t>(call);
    return LaunchDequantizeTo<R, int64_t>(call);
  });
}

int LaunchQuantize(const QuantizeCall& call) {
  if (call.grid.elements() == 0) return 0;
  if (HasShortIndices(call.grid.elements())) return LaunchQuantizeBy<int32_t>(call);
  return LaunchQuantizeBy<int64_t>(call);
}

int LaunchDynamicQuantize(const DynamicQuantizeCall& call) {
  int code = Launch<kQuantizedThreads>(call.queue, QuantizedGrid(1), ClearBody{call.range, 2});
  if (code != 0) return code;
  code = Launch<kQuantizedThreads>(call.queue, QuantizedGrid(call.count),
                                   ExtremesBody{call.x, call.range, call.count});
  if (code != 0) return code;
  // One thread at least: there is a scale of nothing, too.
  const LaunchGrid grid = CodesGrid(call.count == 0 ? 1 : call.count);
  return Launch<kQuantizedThreads>(
      call.queue, grid,
      DynamicQuantizeBody{call.x, call.range, call.y, call.scale, call.zero, call.count,
                          AllowsPackets(call.y, kCodesAtOnce)});
}

}  // namespace weft::cuda
