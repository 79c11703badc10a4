#include "distributed/keys/certificate.h"

#include <arpa/inet.h>
#include <openssl/pem.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "distributed/keys/certificate_store.h"
#include "distributed/keys/openssl.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

struct NamedRole {
  Role role;
  std::string_view name;
};
constexpr std::array<NamedRole, 3> kRoles = {{{Role::kCoordinator, "coordinator"},
                                              {Role::kWorker, "worker"},
                                              {Role::kObserver, "observer"}}};

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string TextOf(const ASN1_STRING* value) {
  if (value == nullptr) return "";
  return absl::Utf8SafeCEscape(
      absl::string_view(reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
                        static_cast<size_t>(ASN1_STRING_length(value))));
}

std::string CommonName(const X509_NAME* name) {
  const int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
  return at < 0 ? "" : TextOf(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

// The text of four or sixteen bytes of an address; "" for others.
std::string AddressText(const unsigned char* bytes, int size) {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  const int family = size == 4 ? AF_INET : AF_INET6;
  if (size != 4 && size != 16) return "";
  if (inet_ntop(family, bytes, text.data(), text.size()) == nullptr) return "";
  return text.data();
}

// An address as AddressText writes it; "" where the text is no address.
std::string CanonicalAddress(const std::string& text) {
  std::array<unsigned char, 16> bytes = {};
  if (inet_pton(AF_INET, text.c_str(), bytes.data()) == 1) return AddressText(bytes.data(), 4);
  if (inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) return AddressText(bytes.data(), 16);
  return "";
}

absl::Status AddRole(const std::string& uri, Certificate& certificate) {
  absl::string_view name = uri;
  if (!absl::ConsumePrefix(&name, kRoleUriPrefix)) return absl::OkStatus();
  const std::optional<Role> role = ParseRole({name.data(), name.size()});
  if (!role.has_value() || certificate.role.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the certificate of '", certificate.subject, "' has ",
                     role.has_value() ? "two roles" : "a role that is not known", " (", uri,
                     "); make new keys: graph_runner cluster keys"));
  }
  certificate.role = role;
  return absl::OkStatus();
}

absl::Status AddAlternativeNames(const X509& parsed, Certificate& certificate) {
  const OpenSsl<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&parsed, NID_subject_alt_name, nullptr, nullptr)));
  const int count = names == nullptr ? 0 : sk_GENERAL_NAME_num(names.get());
  for (int i = 0; i < count; ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    switch (name->type) {
      case GEN_DNS:
        certificate.names.push_back(TextOf(name->d.dNSName));
        break;
      case GEN_IPADD:
        certificate.addresses.push_back(AddressText(ASN1_STRING_get0_data(name->d.iPAddress),
                                                    ASN1_STRING_length(name->d.iPAddress)));
        break;
      case GEN_URI:
        WEFT_RETURN_IF_ERROR(AddRole(TextOf(name->d.uniformResourceIdentifier), certificate));
        break;
      default:
        break;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Certificate> Describe(const X509& parsed) {
  Certificate certificate;
  certificate.subject = CommonName(X509_get_subject_name(&parsed));
  certificate.issuer = CommonName(X509_get_issuer_name(&parsed));
  certificate.not_before = TimeOf(X509_get0_notBefore(&parsed));
  certificate.not_after = TimeOf(X509_get0_notAfter(&parsed));
  certificate.is_authority = X509_check_ca(const_cast<X509*>(&parsed)) == 1;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned size = 0;
  if (X509_digest(&parsed, EVP_sha256(), digest.data(), &size) != 1) {
    return OpenSslError("compute a certificate's digest");
  }
  certificate.fingerprint =
      absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
  WEFT_RETURN_IF_ERROR(AddAlternativeNames(parsed, certificate));
  return certificate;
}

}  // namespace

std::string_view RoleName(Role role) {
  for (const NamedRole& entry : kRoles) {
    if (entry.role == role) return entry.name;
  }
  return "no role";
}

std::optional<Role> ParseRole(std::string_view name) {
  for (const NamedRole& entry : kRoles) {
    if (entry.name == name) return entry.role;
  }
  return std::nullopt;
}

bool Certificate::IsFor(std::string_view host) const {
  const std::string address = CanonicalAddress(std::string(host));
  if (!address.empty()) {
    return std::find(addresses.begin(), addresses.end(), address) != addresses.end();
  }
  const absl::string_view wanted = absl::StripSuffix(View(host), ".");
  return std::any_of(names.begin(), names.end(), [wanted](const std::string& name) {
    return absl::EqualsIgnoreCase(absl::StripSuffix(name, "."), wanted);
  });
}

std::string Certificate::HostsText() const {
  std::vector<std::string> all = names;
  all.insert(all.end(), addresses.begin(), addresses.end());
  return all.empty() ? "no host" : absl::StrJoin(all, ", ");
}

// "the certificate of 'b', whose role is observer".
static std::string CertificateAndRole(const Certificate& certificate) {
  return absl::StrCat("the certificate of '", certificate.subject, "', ",
                      certificate.role.has_value()
                          ? absl::StrCat("whose role is ", View(RoleName(*certificate.role)))
                          : std::string("which has no role"));
}

absl::Status CheckCoordinator(const Certificate& certificate) {
  if (certificate.role == Role::kCoordinator) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat(
      "who serves there has ", CertificateAndRole(certificate),
      "; workers join a coordinator alone: give --join the address of train --listen"));
}

absl::Status CheckServer(const Certificate& certificate, std::string_view host) {
  if (certificate.role != Role::kWorker) {
    return absl::UnauthenticatedError(absl::StrCat(
        "who serves there has ", CertificateAndRole(certificate),
        "; only a worker's may serve: start it with --keys DIR/HOST of graph_runner cluster keys"));
  }
  if (certificate.IsFor(host)) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat(
      "the certificate of '", certificate.subject, "' is for ", certificate.HostsText(),
      ", not for ", absl::CHexEscape(View(host)),
      "; write one of these names in the cluster file, or make a certificate with this one: "
      "graph_runner cluster keys --hosts ",
      absl::CHexEscape(View(host))));
}

std::string DateText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

absl::StatusOr<Certificate> ParseCertificate(std::string_view pem) {
  WEFT_ASSIGN_OR_RETURN(const CertificateStack stack, ReadCertificates(pem));
  return Describe(*stack.front());
}

std::string VerificationText(int code, const Certificate& certificate) {
  const std::string who = absl::StrCat("the certificate of '", certificate.subject, "' (for ",
                                       certificate.HostsText(), ")");
  switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return absl::StrCat(who, " has expired on ", DateText(certificate.not_after),
                          "; make a new one: graph_runner cluster keys");
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return absl::StrCat(who, " is valid only from ", DateText(certificate.not_before),
                          " on; compare the clocks of both machines");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return absl::StrCat(who, " is signed by another authority (", certificate.issuer,
                          ") than this cluster's; take the folders of both ends from one DIR of "
                          "graph_runner cluster keys");
    case X509_V_ERR_INVALID_PURPOSE:
      return absl::StrCat(who,
                          " is not made for this end of a connection; only a worker's may serve, "
                          "and a coordinator's that graph_runner cluster keys has made anew");
    default:
      return absl::StrCat(who, " cannot be verified: ", X509_verify_cert_error_string(code));
  }
}

absl::Status VerifyCertificate(std::string_view authorities, std::string_view pem, Purpose purpose,
                               absl::Time now) {
  WEFT_ASSIGN_OR_RETURN(const CertificateStack chain, ReadCertificates(pem));
  WEFT_ASSIGN_OR_RETURN(const OpenSsl<X509_STORE> store, NewStore(authorities));
  const OpenSsl<STACK_OF(X509)> others(sk_X509_new_null());
  const OpenSsl<X509_STORE_CTX> context(X509_STORE_CTX_new());
  if (context == nullptr || others == nullptr) return OpenSslError("verify a certificate");
  for (size_t i = 1; i < chain.size(); ++i) {
    if (X509_up_ref(chain[i].get()) == 1) sk_X509_push(others.get(), chain[i].get());
  }
  if (X509_STORE_CTX_init(context.get(), store.get(), chain.front().get(), others.get()) != 1) {
    return OpenSslError("verify a certificate");
  }
  X509_STORE_CTX_set_time(context.get(), 0, absl::ToTimeT(now));
  X509_STORE_CTX_set_purpose(context.get(), purpose == Purpose::kServer ? X509_PURPOSE_SSL_SERVER
                                                                        : X509_PURPOSE_SSL_CLIENT);
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  const X509* const own = chain.front().get();
  const X509* const blamed = BlamedCertificate(*context);
  WEFT_ASSIGN_OR_RETURN(const Certificate found, Describe(blamed != nullptr ? *blamed : *own));
  return absl::UnauthenticatedError(
      VerificationText(X509_STORE_CTX_get_error(context.get()), found));
}

}  // namespace weft
