#include "ops/fusion/fusion_rules.h"

#include <map>

namespace weft {
namespace {

std::map<DeviceKind, FusionRules>& RulesOfDevices() {
  static auto* const rules = new std::map<DeviceKind, FusionRules>();
  return *rules;
}

}  // namespace

const FusionRules* FindFusionRules(DeviceKind device) {
  const auto found = RulesOfDevices().find(device);
  return found == RulesOfDevices().end() ? nullptr : &found->second;
}

bool RegisterFusionRules(DeviceKind device, const FusionRules& rules) {
  RulesOfDevices()[device] = rules;
  return true;
}

}  // namespace weft
