#include "distributed/keys/tls_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/keys/certificate_store.h"
#include "distributed/keys/host_and_port.h"
#include "distributed/keys/openssl.h"
#include "platform/file_descriptor.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The protocol by which gRPC's servers know their clients.
constexpr unsigned char kHttp2[] = {2, 'h', '2'};

// False at the deadline.
bool AwaitSocket(int socket, short events, absl::Time deadline) {
  while (true) {
    pollfd waits = {socket, events, 0};
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    const int count = poll(&waits, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
    if (count > 0) return true;
    if (count < 0 && errno == EINTR) continue;
    return false;
  }
}

absl::Status NobodyListens(const std::string& address) {
  return absl::UnavailableError(absl::StrCat("nobody listens on ", address));
}

absl::StatusOr<FileDescriptor> ConnectTo(const std::string& address, absl::Time deadline) {
  const HostAndPort parts = SplitAddress(address);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot resolve ", address));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    FileDescriptor file(socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!file.valid()) continue;
    if (connect(file.get(), one->ai_addr, one->ai_addrlen) == 0) return file;
    if (errno != EINPROGRESS || !AwaitSocket(file.get(), POLLOUT, deadline)) continue;
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(file.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return file;
  }
  return NobodyListens(address);
}

// What the verification of the peer's certificate said first; SSL_set_ex_data would need an index.
struct Verdict {
  absl::Status status;
};

int OnVerified(int is_ok, X509_STORE_CTX* context) {
  if (is_ok == 1) return 1;
  const auto* const ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(context, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto* const verdict = static_cast<Verdict*>(SSL_get_app_data(ssl));
  const OpenSsl<BIO> text(BIO_new(BIO_s_mem()));
  const X509* const at = BlamedCertificate(*context);
  Certificate certificate;
  if (text != nullptr && at != nullptr && PEM_write_bio_X509(text.get(), at) == 1) {
    if (auto parsed = ParseCertificate(BytesOf(*text)); parsed.ok()) {
      certificate = *std::move(parsed);
    }
  }
  verdict->status =
      absl::UnauthenticatedError(VerificationText(X509_STORE_CTX_get_error(context), certificate));
  return 0;
}

absl::StatusOr<OpenSsl<SSL_CTX>> NewContext(const KeySet* keys) {
  OpenSsl<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return OpenSslError("begin TLS");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_alpn_protos(context.get(), kHttp2, sizeof(kHttp2));
  if (keys == nullptr) return context;
  WEFT_ASSIGN_OR_RETURN(OpenSsl<X509_STORE> store, NewStore(keys->authority_pem));
  SSL_CTX_set_cert_store(context.get(), store.release());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, &OnVerified);
  WEFT_ASSIGN_OR_RETURN(const CertificateStack stack, ReadCertificates(keys->identity_pem));
  WEFT_ASSIGN_OR_RETURN(const OpenSsl<EVP_PKEY> key, ReadPrivateKey(keys->identity_pem));
  if (SSL_CTX_use_certificate(context.get(), stack.front().get()) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1) {
    return OpenSslError("use the keys");
  }
  return context;
}

class Probe {
 public:
  Probe(const std::string& address, const KeySet* keys, absl::Time deadline, Role serves)
      : address_(address), keys_(keys), deadline_(deadline), serves_(serves) {}

  absl::Status Run() {
    WEFT_ASSIGN_OR_RETURN(socket_, ConnectTo(address_, deadline_));
    WEFT_ASSIGN_OR_RETURN(const OpenSsl<SSL_CTX> context, NewContext(keys_));
    ssl_.reset(SSL_new(context.get()));
    if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), socket_.get()) != 1) {
      return OpenSslError("begin TLS");
    }
    SSL_set_app_data(ssl_.get(), &verdict_);
    const int connected = Do([this] { return SSL_connect(ssl_.get()); });
    if (keys_ == nullptr) return connected == 1 ? WantsTls() : absl::OkStatus();
    if (connected != 1) return ExplainHandshake();
    WEFT_RETURN_IF_ERROR(CheckPeer());
    // With TLS 1.3 this end is done before the peer has looked at our certificate. One that takes
    // it begins with HTTP/2's settings.
    char byte = 0;
    const int read = Do([this, &byte] { return SSL_read(ssl_.get(), &byte, 1); });
    return read == 1 || is_late_ ? absl::OkStatus() : ExplainRefusal();
  }

 private:
  // Repeats a call of OpenSSL until it is done or fails; 0 at the deadline, or where it failed.
  template <typename Call>
  int Do(const Call& call) {
    while (true) {
      ERR_clear_error();
      const int result = call();
      if (result == 1) return 1;
      const int why = SSL_get_error(ssl_.get(), result);
      const bool waits = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
      if (!waits) return 0;
      if (!AwaitSocket(socket_.get(), why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline_)) {
        is_late_ = true;
        return 0;
      }
    }
  }

  absl::Status WantsTls() const {
    return absl::FailedPreconditionError(
        absl::StrCat(address_,
                     " speaks TLS, and this end has no keys: give it --keys DIR of the "
                     "cluster (graph_runner cluster keys makes one)"));
  }

  absl::Status SpeaksNone() const {
    return absl::FailedPreconditionError(
        absl::StrCat(address_, " does not speak TLS: start the worker there with --keys DIR/HOST"));
  }

  absl::Status ExplainHandshake() const {
    if (!verdict_.status.ok()) return verdict_.status;
    if (is_late_) return absl::UnavailableError(absl::StrCat(address_, " does not answer"));
    switch (ERR_GET_REASON(ERR_peek_last_error())) {
      case SSL_R_WRONG_VERSION_NUMBER:
      case SSL_R_HTTP_REQUEST:
      case SSL_R_PACKET_LENGTH_TOO_LONG:
      case SSL_R_BAD_RECORD_TYPE:
      case SSL_R_UNEXPECTED_MESSAGE:
        return SpeaksNone();
      case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
      case SSL_R_UNSUPPORTED_PROTOCOL:
        return absl::FailedPreconditionError(
            absl::StrCat(address_,
                         " speaks an older TLS than 1.3; start the same version of Weft "
                         "there"));
      default:
        return absl::UnavailableError(
            absl::StrCat(address_, " has broken off the handshake of TLS"));
    }
  }

  absl::Status CheckPeer() const {
    const OpenSsl<X509> peer(SSL_get1_peer_certificate(ssl_.get()));
    const OpenSsl<BIO> text(BIO_new(BIO_s_mem()));
    if (peer == nullptr || text == nullptr || PEM_write_bio_X509(text.get(), peer.get()) != 1) {
      return OpenSslError("read the peer's certificate");
    }
    WEFT_ASSIGN_OR_RETURN(const Certificate certificate, ParseCertificate(BytesOf(*text)));
    if (serves_ == Role::kCoordinator) return CheckCoordinator(certificate);
    return CheckServer(certificate, SplitAddress(address_).host);
  }

  absl::Status ExplainRefusal() const {
    return absl::UnauthenticatedError(absl::StrCat(address_, " does not take the certificate of '",
                                                   keys_->certificate.subject, "', signed by '",
                                                   keys_->certificate.issuer,
                                                   "': does the worker there have keys of another "
                                                   "authority, or a clock that is wrong? Its log "
                                                   "(--log-level warning) says more"));
  }

  const std::string& address_;
  const KeySet* const keys_;
  const absl::Time deadline_;
  const Role serves_;
  FileDescriptor socket_;
  Verdict verdict_;
  bool is_late_ = false;
  OpenSsl<SSL> ssl_;
};

}  // namespace

absl::Status ProbeTls(const std::string& address, const KeySet* keys, absl::Duration timeout,
                      Role serves) {
  const absl::Status status = Probe(address, keys, absl::Now() + timeout, serves).Run();
  ERR_clear_error();
  return status;
}

}  // namespace weft
