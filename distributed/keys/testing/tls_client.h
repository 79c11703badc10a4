// A client of one version of TLS, for tests of what a server refuses.
#ifndef WEFT_DISTRIBUTED_KEYS_TESTING_TLS_CLIENT_H_
#define WEFT_DISTRIBUTED_KEYS_TESTING_TLS_CLIENT_H_

#include <string>
#include <string_view>

#include "distributed/keys/key_folder.h"

namespace weft {

// Versions of TLS that AgreesOnTls tries.
enum class TlsVersion { k12, k13 };

// Whether the server at "host:port" finishes a handshake with a client that has these keys, speaks
// this version alone, and verifies nothing. Blocks until the server has answered.
bool AgreesOnTls(const std::string& address, const KeySet& keys, TlsVersion version);

// Whether the server takes this client, which sends `bytes` right after the handshake: a server of
// HTTP/2 then speaks first. With TLS 1.3 the end of the handshake says nothing, because the server
// looks at the certificate afterwards. `keys`: with the certificates of its chain; null: the client
// has no certificate. Waits 20 s at most, and closes the connection.
bool IsLetIn(const std::string& address, const KeySet* keys, TlsVersion version,
             std::string_view bytes = "");

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_KEYS_TESTING_TLS_CLIENT_H_
