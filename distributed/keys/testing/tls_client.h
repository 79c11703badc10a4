// A client of one version of TLS, for tests of what a server refuses.
#ifndef WEFT_DISTRIBUTED_KEYS_TESTING_TLS_CLIENT_H_
#define WEFT_DISTRIBUTED_KEYS_TESTING_TLS_CLIENT_H_

#include <string>

#include "distributed/keys/key_folder.h"

namespace weft {

// Versions of TLS that AgreesOnTls tries.
enum class TlsVersion { k12, k13 };

// Whether the server at "host:port" finishes a handshake with a client that has these keys, speaks
// this version alone, and verifies nothing. Blocks until the server has answered.
bool AgreesOnTls(const std::string& address, const KeySet& keys, TlsVersion version);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_KEYS_TESTING_TLS_CLIENT_H_
