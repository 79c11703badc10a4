#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/optimizer/update_body.h"
#include "ops/kernels/cuda/optimizer/update_grid.h"

namespace weft::cuda {
namespace {

template <class Rule, typename T>
int UpdateOf(LaunchQueue queue, const UpdateCall& call) {
  using Body = UpdateBody<Rule, T>;
  Body body{};
  body.w = static_cast<const T*>(call.w);
  body.g = static_cast<const T*>(call.g);
  body.new_w = static_cast<T*>(call.new_w);
  bool has_packets = HasPackets(call.w) && HasPackets(call.g) && HasPackets(call.new_w);
  int states = 0;
  for (int s = 0; s < kMaxStates; ++s) {
    if (call.state[s] == nullptr) continue;
    if (states == Rule::kStates) return kNoSuchBody;
    body.state[states] = static_cast<const T*>(call.state[s]);
    body.new_state[states] = static_cast<T*>(call.new_state[s]);
    has_packets = has_packets && HasPackets(call.state[s]) && HasPackets(call.new_state[s]);
    ++states;
  }
  if (states != Rule::kStates) return kNoSuchBody;
  body.count = call.count;
  body.packets = has_packets ? call.count / Body::kWidth : 0;
  body.attributes = call.attributes;
  body.rate = call.rate;
  body.scale = call.scale;
  body.step = call.step;
  body.report = call.report;
  return Launch<kUpdateThreads>(queue, UpdateGrid(call.count, body.packets, Body::kWidth), body);
}

template <class Rule>
int UpdateBy(LaunchQueue queue, const UpdateCall& call) {
  return LaunchByType(call.dtype, LaunchTypes<float, double>(),
                      [&](auto zero) { return UpdateOf<Rule, decltype(zero)>(queue, call); });
}

}  // namespace

int LaunchUpdate(LaunchQueue queue, const UpdateCall& call) {
  if (call.count == 0) return 0;
  switch (call.kind) {
    case UpdateKind::kSgd:
      if (call.state[0] == nullptr) return UpdateBy<SgdRule<false, false>>(queue, call);
      if (call.attributes.nesterov) return UpdateBy<SgdRule<true, true>>(queue, call);
      return UpdateBy<SgdRule<true, false>>(queue, call);
    case UpdateKind::kAdam:
      if (call.state[2] == nullptr) return UpdateBy<AdamRule<false>>(queue, call);
      return UpdateBy<AdamRule<true>>(queue, call);
    case UpdateKind::kLion:
      return UpdateBy<LionRule>(queue, call);
    case UpdateKind::kRmsprop:
      if (call.state[1] == nullptr) {
        if (call.state[2] == nullptr) return UpdateBy<RmspropRule<false, false>>(queue, call);
        return UpdateBy<RmspropRule<false, true>>(queue, call);
      }
      if (call.state[2] == nullptr) return UpdateBy<RmspropRule<true, false>>(queue, call);
      return UpdateBy<RmspropRule<true, true>>(queue, call);
    case UpdateKind::kAdadelta:
      return UpdateBy<AdadeltaRule>(queue, call);
    case UpdateKind::kAdagrad:
      return UpdateBy<AdagradRule>(queue, call);
    case UpdateKind::kRadam:
      return UpdateBy<RadamRule>(queue, call);
    case UpdateKind::kLamb:
      return UpdateBy<LambRule>(queue, call);
    case UpdateKind::kEma:
      return UpdateBy<EmaRule>(queue, call);
  }
  return kNoSuchBody;
}

}  // namespace weft::cuda
