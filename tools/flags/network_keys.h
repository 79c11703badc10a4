// What --keys, --token-file and --insecure-network say together.
#ifndef WEFT_TOOLS_FLAGS_NETWORK_KEYS_H_
#define WEFT_TOOLS_FLAGS_NETWORK_KEYS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "distributed/keys/key_ring.h"
#include "tools/console/console.h"

namespace weft {

// The texts of the three flags; empty where they were not given.
struct NetworkFlags {
  std::string keys;
  std::string token_file;
  bool insecure_network = false;
};

// How a process meets its peers.
struct NetworkKeys {
  std::shared_ptr<KeyRing> keys;  // null: no TLS
  std::string token;
};

// Reads keys and token. Says on `console.err` what --insecure-network means, each time, and when a
// certificate expires soon. Errors have the exit code of wrong usage: --keys with
// --insecure-network, files that are missing, can be read by others, or do not fit.
absl::StatusOr<NetworkKeys> ReadNetworkKeys(const NetworkFlags& flags, Console& console);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_NETWORK_KEYS_H_
