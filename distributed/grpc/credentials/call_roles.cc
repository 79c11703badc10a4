#include "distributed/grpc/credentials/call_roles.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

absl::StatusOr<Certificate> PeerCertificate(const grpc::AuthContext& peer) {
  if (peer.IsPeerAuthenticated()) {
    const std::vector<grpc::string_ref> pem =
        peer.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
    if (pem.size() == 1) return ParseCertificate({pem[0].data(), pem[0].size()});
  }
  return absl::UnauthenticatedError(
      "the caller has no certificate: give it --keys DIR of the cluster");
}

absl::Status CheckRole(const Certificate& certificate, WorkerCall call) {
  for (const CallRule& rule : kCallRules) {
    if (rule.call != call) continue;
    if (certificate.role == rule.role) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat(
        Text(rule.name), " is for the role ", Text(RoleName(rule.role)), "; the certificate of '",
        certificate.subject, "' has ",
        certificate.role.has_value() ? absl::StrCat("the role ", Text(RoleName(*certificate.role)))
                                     : std::string("none"),
        ": give --keys the folder that fits"));
  }
  return absl::PermissionDeniedError("no role may make this call");
}

absl::Status CheckRole(const grpc::AuthContext& peer, WorkerCall call) {
  WEFT_ASSIGN_OR_RETURN(const Certificate certificate, PeerCertificate(peer));
  return CheckRole(certificate, call);
}

absl::Status CheckPeerHost(const grpc::AuthContext& peer, int rank, const std::string& host) {
  WEFT_ASSIGN_OR_RETURN(const Certificate certificate, PeerCertificate(peer));
  if (certificate.IsFor(host)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the sender says it is rank ", rank, ", which the cluster file puts on ", host,
                   "; its certificate is for ", certificate.HostsText(),
                   ": use the names of the certificates in the cluster file"));
}

}  // namespace weft
