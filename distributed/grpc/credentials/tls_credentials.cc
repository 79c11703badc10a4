#include "distributed/grpc/credentials/tls_credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/keys/certificate.h"
#include "platform/log.h"

namespace weft {
namespace {

namespace tls = grpc::experimental;

// How often the server looks at its files; gRPC allows whole seconds.
constexpr unsigned kRefreshSeconds = 1;
constexpr absl::Duration kLogInterval = absl::Seconds(1);

std::atomic<int64_t> failed_handshakes{0};
std::atomic<int64_t> next_log_nanos{0};

// Comes after OpenSSL has verified the chain. gRPC's own names of the certificate are not used:
// one reading of a certificate decides everywhere.
class ServerVerifier final : public tls::ExternalCertificateVerifier {
 public:
  ServerVerifier(std::string host, Role serves) : host_(std::move(host)), serves_(serves) {}
  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const grpc::string_ref pem = request->peer_cert();
    const auto certificate = ParseCertificate({pem.data(), pem.size()});
    const absl::Status verdict = certificate.ok() ? Check(*certificate) : certificate.status();
    if (!verdict.ok()) {
      *status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, std::string(verdict.message()));
    }
    return true;  // decided at once
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  absl::Status Check(const Certificate& certificate) const {
    return serves_ == Role::kCoordinator ? CheckCoordinator(certificate)
                                         : CheckServer(certificate, host_);
  }

  const std::string host_;
  const Role serves_;
};

// What went wrong, where OpenSSL's reason tells it.
std::string ReasonOf(const std::string& text) {
  if (absl::StrContains(text, "certificate verify failed")) {
    return "its certificate is expired, or of another authority";
  }
  if (absl::StrContains(text, "did not return a certificate")) return "it has no certificate";
  if (absl::StrContains(text, "wrong version number") || absl::StrContains(text, "http request")) {
    return "it does not speak TLS (started without --keys?)";
  }
  if (absl::StrContains(text, "no shared cipher") ||
      absl::StrContains(text, "unsupported protocol")) {
    return "it speaks an older TLS than 1.3";
  }
  return "the handshake was broken off";
}

}  // namespace

void RequireTls13() {
  // Pre-shared keys, of which neither end has any: with TLS 1.2 there is nothing to agree on. The
  // suites of TLS 1.3 are not part of this list.
  setenv("GRPC_SSL_CIPHER_SUITES", "PSK-AES256-GCM-SHA384", /*overwrite=*/1);
}

std::shared_ptr<grpc::ServerCredentials> NewServerCredentials(const KeyRing& keys) {
  tls::TlsServerCredentialsOptions options(std::make_shared<tls::FileWatcherCertificateProvider>(
      keys.identity_path(), keys.identity_path(), keys.authority_path(), kRefreshSeconds));
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  // Without one, gRPC would look for the name of a host, which a client need not have. The role is
  // checked on each call.
  options.set_certificate_verifier(std::make_shared<tls::NoOpCertificateVerifier>());
  return tls::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> NewChannelCredentials(const KeySet& keys,
                                                                const std::string& host,
                                                                Role serves) {
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<tls::StaticDataCertificateProvider>(
      keys.authority_pem,
      std::vector<tls::IdentityKeyCertPair>{{keys.identity_pem, keys.identity_pem}}));
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  options.set_verify_server_certs(true);
  options.set_check_call_host(false);  // the verifier does
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<ServerVerifier>(host, serves));
  return tls::TlsCredentials(options);
}

void NoteHandshakeError(const std::string& text) {
  if (!absl::StrContains(text, "Handshake failed")) return;
  const int64_t count = ++failed_handshakes;
  const int64_t now = absl::GetCurrentTimeNanos();
  int64_t next = next_log_nanos.load();
  if (now < next) return;
  if (!next_log_nanos.compare_exchange_strong(next, now + absl::ToInt64Nanoseconds(kLogInterval))) {
    return;
  }
  Log(LogLevel::kWarning, "a secured connection was refused: ", ReasonOf(text), " (", count,
      " so far)");
}

int64_t FailedHandshakes() { return failed_handshakes.load(); }

std::string WithTlsHint(const std::string& text) {
  if (!absl::StrContains(text, "handshake failed")) return text;
  return absl::StrCat(text, "; ", ReasonOf(text), ": see graph_runner cluster keys");
}

}  // namespace weft
