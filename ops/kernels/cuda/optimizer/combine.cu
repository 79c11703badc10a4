// Scale, AddN, TrustRatio and RateFactor.
#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/optimizer/update_body.h"
#include "ops/kernels/cuda/optimizer/update_grid.h"

namespace weft::cuda {

int LaunchScales(LaunchQueue queue, DType dtype, const ScaleItem* scales, int count) {
  return LaunchByType(dtype, FloatLaunches(), [&](auto zero) {
    using T = decltype(zero);
    using Body = ScaleBody<T>;
    return LaunchOverTensors(queue, Body{}, count, [&](int i, typename Body::Item& item) {
      const ScaleItem& scale = scales[i];
      item.count = scale.count;
      item.x = static_cast<const T*>(scale.x);
      item.s = static_cast<const T*>(scale.s);
      item.y = static_cast<T*>(scale.y);
      item.packets = HasPackets(scale.x) && HasPackets(scale.y) ? scale.count / Body::kWidth : 0;
    });
  });
}

int LaunchAdd(LaunchQueue queue, const AddCall& call) {
  return LaunchByType(call.dtype, NumberLaunches(), [&](auto zero) {
    using T = decltype(zero);
    using Body = AddBody<T>;
    Body body{};
    bool has_packets = HasPackets(call.y);
    for (int n = 0; n < call.addends; ++n) {
      body.x[n] = static_cast<const T*>(call.x[n]);
      has_packets = has_packets && HasPackets(call.x[n]);
    }
    body.addends = call.addends;
    body.y = static_cast<T*>(call.y);
    body.count = call.count;
    body.packets = has_packets ? call.count / Body::kWidth : 0;
    return Launch<kUpdateThreads>(queue, UpdateGrid(call.count, body.packets, Body::kWidth), body);
  });
}

int LaunchTrustRatio(LaunchQueue queue, DType dtype, const void* w, const void* u, void* ratio,
                     int64_t count, double coefficient, double weight_decay, double epsilon) {
  return LaunchByType(dtype, LaunchTypes<float, double>(), [&](auto zero) {
    using T = decltype(zero);
    return Launch<kUpdateThreads>(
        queue, UpdateGrid(count, 0, 1),
        TrustRatioBody<T>{static_cast<const T*>(w), static_cast<const T*>(u),
                          static_cast<T*>(ratio), count, coefficient, weight_decay, epsilon});
  });
}

int LaunchRateFactor(LaunchQueue queue, const RateCall& call) {
  if (call.count == 0) return 0;
  return Launch<kWarp>(queue, {.blocks = Blocks(call.count, kWarp), .threads = kWarp},
                       RateBody{call});
}

}  // namespace weft::cuda
