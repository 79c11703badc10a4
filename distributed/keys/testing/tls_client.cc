#include "distributed/keys/testing/tls_client.h"

#include <openssl/err.h>

#include "distributed/keys/certificate_store.h"
#include "distributed/keys/openssl.h"

namespace weft {

bool AgreesOnTls(const std::string& address, const KeySet& keys, TlsVersion version) {
  const OpenSsl<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
  const int number = version == TlsVersion::k12 ? TLS1_2_VERSION : TLS1_3_VERSION;
  SSL_CTX_set_min_proto_version(context.get(), number);
  SSL_CTX_set_max_proto_version(context.get(), number);
  const unsigned char http2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), http2, sizeof(http2));
  const auto stack = ReadCertificates(keys.identity_pem);
  const auto key = ReadPrivateKey(keys.identity_pem);
  SSL_CTX_use_certificate(context.get(), stack->front().get());
  SSL_CTX_use_PrivateKey(context.get(), key->get());
  const OpenSsl<BIO> connection(BIO_new_ssl_connect(context.get()));
  BIO_set_conn_hostname(connection.get(), address.c_str());
  const bool agrees =
      BIO_do_connect(connection.get()) == 1 && BIO_do_handshake(connection.get()) == 1;
  ERR_clear_error();
  return agrees;
}

}  // namespace weft
