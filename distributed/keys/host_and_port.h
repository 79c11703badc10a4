// HostAndPort: the two parts of the address of a worker in a network.
#ifndef WEFT_DISTRIBUTED_KEYS_HOST_AND_PORT_H_
#define WEFT_DISTRIBUTED_KEYS_HOST_AND_PORT_H_

#include <string>

namespace weft {

struct HostAndPort {
  std::string host;  // without the brackets of IPv6
  std::string port;
};

// "10.0.0.8:4000", "alpha:4000", "[::1]:4000"; without a colon all is the host. Nothing is checked.
HostAndPort SplitAddress(const std::string& address);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_KEYS_HOST_AND_PORT_H_
