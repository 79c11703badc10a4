#include "ops/memory_work.h"

#include <map>

namespace weft {
namespace {

std::map<DeviceKind, MemoryWork>& RegisteredMemoryWork() {
  static auto* const works = new std::map<DeviceKind, MemoryWork>;
  return *works;
}

}  // namespace

bool RegisterMemoryWork(DeviceKind kind, const MemoryWork& work) {
  RegisteredMemoryWork()[kind] = work;
  return true;
}

const MemoryWork* FindMemoryWork(DeviceKind kind) {
  const auto found = RegisteredMemoryWork().find(kind);
  return found != RegisteredMemoryWork().end() ? &found->second : nullptr;
}

}  // namespace weft
