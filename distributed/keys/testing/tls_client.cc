#include "distributed/keys/testing/tls_client.h"

#include <openssl/err.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <csignal>
#include <cstddef>
#include <utility>

#include "distributed/keys/certificate_store.h"
#include "distributed/keys/openssl.h"

namespace weft {
namespace {

constexpr int kPatienceSeconds = 20;

// Of a client that verifies nothing. Null keys: it has no certificate.
OpenSsl<SSL_CTX> ClientContext(const KeySet* keys, TlsVersion version) {
  OpenSsl<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
  const int number = version == TlsVersion::k12 ? TLS1_2_VERSION : TLS1_3_VERSION;
  SSL_CTX_set_min_proto_version(context.get(), number);
  SSL_CTX_set_max_proto_version(context.get(), number);
  const unsigned char http2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), http2, sizeof(http2));
  if (keys == nullptr) return context;
  const auto stack = ReadCertificates(keys->identity_pem);
  const auto key = ReadPrivateKey(keys->identity_pem);
  SSL_CTX_use_certificate(context.get(), stack->front().get());
  for (size_t i = 1; i < stack->size(); ++i) {
    SSL_CTX_add1_chain_cert(context.get(), (*stack)[i].get());
  }
  SSL_CTX_use_PrivateKey(context.get(), key->get());
  return context;
}

// Null where the handshake has failed.
OpenSsl<BIO> Connect(SSL_CTX& context, const std::string& address) {
  // OpenSSL writes to servers that have closed the connection, at the latest when it is freed.
  std::signal(SIGPIPE, SIG_IGN);
  OpenSsl<BIO> connection(BIO_new_ssl_connect(&context));
  BIO_set_conn_hostname(connection.get(), address.c_str());
  const bool agrees =
      BIO_do_connect(connection.get()) == 1 && BIO_do_handshake(connection.get()) == 1;
  ERR_clear_error();
  return agrees ? std::move(connection) : nullptr;
}

}  // namespace

bool AgreesOnTls(const std::string& address, const KeySet& keys, TlsVersion version) {
  const OpenSsl<SSL_CTX> context = ClientContext(&keys, version);
  return Connect(*context, address) != nullptr;
}

bool IsLetIn(const std::string& address, const KeySet* keys, TlsVersion version,
             std::string_view bytes) {
  const OpenSsl<SSL_CTX> context = ClientContext(keys, version);
  const OpenSsl<BIO> connection = Connect(*context, address);
  if (connection == nullptr) return false;
  int socket = -1;
  BIO_get_fd(connection.get(), &socket);
  const timeval patience = {kPatienceSeconds, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  if (!bytes.empty()) BIO_write(connection.get(), bytes.data(), static_cast<int>(bytes.size()));
  char first = 0;
  const bool answers = BIO_read(connection.get(), &first, 1) == 1;
  ERR_clear_error();
  return answers;
}

}  // namespace weft
