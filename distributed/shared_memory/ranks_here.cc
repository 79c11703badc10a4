#include "distributed/shared_memory/ranks_here.h"

#include <cstddef>

#include "distributed/grpc/address.h"

namespace weft {

std::vector<bool> RanksHere(const std::vector<std::string>& addresses, RankId rank) {
  // Local addresses are all of one machine.
  const auto machine = [](const std::string& address) {
    return IsLocalAddress(address) ? std::string() : HostOf(address);
  };
  if (!rank.valid() || static_cast<size_t>(rank.value) >= addresses.size()) {
    return std::vector<bool>(addresses.size(), false);
  }
  const std::string own = machine(addresses[static_cast<size_t>(rank.value)]);
  std::vector<bool> here;
  for (const std::string& address : addresses) here.push_back(machine(address) == own);
  return here;
}

}  // namespace weft
