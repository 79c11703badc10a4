#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/optimizer/update_body.h"
#include "ops/kernels/cuda/optimizer/update_grid.h"

namespace weft::cuda {
namespace {

template <class Rule, typename T>
int UpdatesOf(LaunchQueue queue, const UpdateCall& call, const UpdateItem* updates, int count) {
  using Body = UpdateBody<Rule, T>;
  int states = 0;
  int place[Body::kArrays] = {};
  for (int s = 0; s < kMaxStates; ++s) {
    if (!call.has_state[s]) continue;
    if (states == Rule::kStates) return kNoSuchBody;
    place[states++] = s;
  }
  if (states != Rule::kStates) return kNoSuchBody;
  Body body{};
  body.common = {call.attributes, call.rate_dtype, call.scale_dtype, call.fault};
  return LaunchOverTensors(queue, body, count, [&](int i, typename Body::Item& item) {
    const UpdateItem& update = updates[i];
    item.count = update.count;
    item.w = static_cast<const T*>(update.w);
    item.g = static_cast<const T*>(update.g);
    item.new_w = static_cast<T*>(update.new_w);
    bool has_packets = HasPackets(update.w) && HasPackets(update.g) && HasPackets(update.new_w);
    for (int s = 0; s < states; ++s) {
      item.state[s] = static_cast<const T*>(update.state[place[s]]);
      item.new_state[s] = static_cast<T*>(update.new_state[place[s]]);
      has_packets = has_packets && HasPackets(item.state[s]) && HasPackets(item.new_state[s]);
    }
    item.packets = has_packets ? update.count / Body::kWidth : 0;
    item.rate = update.rate;
    item.scale = update.scale;
    item.step = update.step;
    item.source = update.source;
  });
}

template <class Rule>
int UpdatesBy(LaunchQueue queue, const UpdateCall& call, const UpdateItem* items, int count) {
  return LaunchByType(call.dtype, LaunchTypes<float, double>(), [&](auto zero) {
    return UpdatesOf<Rule, decltype(zero)>(queue, call, items, count);
  });
}

}  // namespace

int LaunchUpdates(LaunchQueue queue, const UpdateCall& call, const UpdateItem* items, int count) {
  switch (call.kind) {
    case UpdateKind::kSgd:
      if (!call.has_state[0]) return UpdatesBy<SgdRule<false, false>>(queue, call, items, count);
      if (call.attributes.nesterov)
        return UpdatesBy<SgdRule<true, true>>(queue, call, items, count);
      return UpdatesBy<SgdRule<true, false>>(queue, call, items, count);
    case UpdateKind::kAdam:
      if (!call.has_state[2]) return UpdatesBy<AdamRule<false>>(queue, call, items, count);
      return UpdatesBy<AdamRule<true>>(queue, call, items, count);
    case UpdateKind::kLion:
      return UpdatesBy<LionRule>(queue, call, items, count);
    case UpdateKind::kRmsprop:
      if (!call.has_state[1]) {
        if (!call.has_state[2])
          return UpdatesBy<RmspropRule<false, false>>(queue, call, items, count);
        return UpdatesBy<RmspropRule<false, true>>(queue, call, items, count);
      }
      if (!call.has_state[2]) return UpdatesBy<RmspropRule<true, false>>(queue, call, items, count);
      return UpdatesBy<RmspropRule<true, true>>(queue, call, items, count);
    case UpdateKind::kAdadelta:
      return UpdatesBy<AdadeltaRule>(queue, call, items, count);
    case UpdateKind::kAdagrad:
      return UpdatesBy<AdagradRule>(queue, call, items, count);
    case UpdateKind::kRadam:
      return UpdatesBy<RadamRule>(queue, call, items, count);
    case UpdateKind::kLamb:
      return UpdatesBy<LambRule>(queue, call, items, count);
    case UpdateKind::kEma:
      return UpdatesBy<EmaRule>(queue, call, items, count);
  }
  return kNoSuchBody;
}

}  // namespace weft::cuda
