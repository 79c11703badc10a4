#include "distributed/keys/key_maker.h"

#include <openssl/pem.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "distributed/keys/certificate_store.h"
#include "distributed/keys/openssl.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int kSerialBits = 159;  // RFC 5280: at most 20 octets, positive

absl::Status Check(int result, std::string_view doing) {
  return result == 1 ? absl::OkStatus() : OpenSslError(doing);
}

absl::StatusOr<OpenSsl<EVP_PKEY>> NewKey() {
  OpenSsl<EVP_PKEY> key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  if (key == nullptr) return OpenSslError("make an Ed25519 key");
  return key;
}

absl::Status SetSerial(X509& certificate) {
  const OpenSsl<BIGNUM> number(BN_new());
  if (number == nullptr) return OpenSslError("make a serial number");
  WEFT_RETURN_IF_ERROR(
      Check(BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY),
            "make a serial number"));
  if (BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(&certificate)) == nullptr) {
    return OpenSslError("make a serial number");
  }
  return absl::OkStatus();
}

absl::Status SetTimes(X509& certificate, absl::Time not_before, absl::Time not_after) {
  if (ASN1_TIME_set(X509_getm_notBefore(&certificate), absl::ToTimeT(not_before)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(&certificate), absl::ToTimeT(not_after)) == nullptr) {
    return OpenSslError("set a certificate's time");
  }
  return absl::OkStatus();
}

absl::Status SetCommonName(X509_NAME* name, const std::string& text) {
  return Check(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                          reinterpret_cast<const unsigned char*>(text.data()),
                                          static_cast<int>(text.size()), -1, 0),
               absl::StrCat("name a certificate '", absl::CEscape(text), "'"));
}

// An extension in OpenSSL's configuration syntax. REQUIRES: `value` is ours, not a user's text.
absl::Status AddExtension(X509& certificate, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, &certificate, nullptr, nullptr, 0);
  const OpenSsl<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  if (extension == nullptr) return OpenSslError(absl::StrCat("make the extension ", value));
  return Check(X509_add_ext(&certificate, extension.get(), -1), "add an extension");
}

bool IsHostName(const std::string& text) {
  return !text.empty() && text.size() <= 253 && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
  });
}

// One alternative name, built without OpenSSL's configuration syntax, in which ',' and ':' of a
// name would mean more.
absl::Status AddName(GENERAL_NAMES& names, int type, const std::string& text) {
  GENERAL_NAME* const name = GENERAL_NAME_new();
  if (name == nullptr || sk_GENERAL_NAME_push(&names, name) == 0) {
    GENERAL_NAME_free(name);
    return OpenSslError("name a certificate's host");
  }
  if (type == GEN_IPADD) {
    ASN1_OCTET_STRING* const address = a2i_IPADDRESS(text.c_str());
    if (address == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", absl::CEscape(text), "' is no IPv4 or IPv6 address"));
    }
    GENERAL_NAME_set0_value(name, type, address);
    return absl::OkStatus();
  }
  ASN1_IA5STRING* const value = ASN1_IA5STRING_new();
  if (value == nullptr || ASN1_STRING_set(value, text.data(), static_cast<int>(text.size())) != 1) {
    ASN1_IA5STRING_free(value);
    return OpenSslError("name a certificate's host");
  }
  GENERAL_NAME_set0_value(name, type, value);
  return absl::OkStatus();
}

absl::Status AddAlternatives(X509& certificate, const CertificateRequest& request) {
  const OpenSsl<GENERAL_NAMES> names(GENERAL_NAMES_new());
  if (names == nullptr) return OpenSslError("name a certificate's hosts");
  for (const std::string& name : request.names) {
    if (!IsHostName(name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", absl::CEscape(name), "' is no name of a host: letters, digits, '.', '-' and '_'"));
    }
    WEFT_RETURN_IF_ERROR(AddName(*names, GEN_DNS, name));
  }
  for (const std::string& address : request.addresses) {
    WEFT_RETURN_IF_ERROR(AddName(*names, GEN_IPADD, address));
  }
  if (request.role.has_value()) {
    WEFT_RETURN_IF_ERROR(AddName(
        *names, GEN_URI, absl::StrCat(kRoleUriPrefix, std::string(RoleName(*request.role)))));
  }
  if (sk_GENERAL_NAME_num(names.get()) == 0) return absl::OkStatus();
  return Check(X509_add1_ext_i2d(&certificate, NID_subject_alt_name, names.get(), 0, 0),
               "name a certificate's hosts");
}

// Signs, and writes both down.
absl::StatusOr<Identity> Finish(X509& certificate, EVP_PKEY& key, EVP_PKEY& signer) {
  // Ed25519 has its digest within.
  if (X509_sign(&certificate, &signer, nullptr) == 0) return OpenSslError("sign a certificate");
  const OpenSsl<BIO> text(BIO_new(BIO_s_mem()));
  const OpenSsl<BIO> secret(BIO_new(BIO_s_secmem()));
  if (text == nullptr || secret == nullptr) return OpenSslError("write a certificate");
  WEFT_RETURN_IF_ERROR(Check(PEM_write_bio_X509(text.get(), &certificate), "write a certificate"));
  WEFT_RETURN_IF_ERROR(Check(
      PEM_write_bio_PKCS8PrivateKey(secret.get(), &key, nullptr, nullptr, 0, nullptr, nullptr),
      "write a private key"));
  return Identity{BytesOf(*text), BytesOf(*secret)};
}

absl::StatusOr<OpenSsl<X509>> NewCertificate(EVP_PKEY& key, absl::Time not_before,
                                             absl::Time not_after) {
  OpenSsl<X509> certificate(X509_new());
  if (certificate == nullptr) return OpenSslError("make a certificate");
  WEFT_RETURN_IF_ERROR(Check(X509_set_version(certificate.get(), X509_VERSION_3), "set a version"));
  WEFT_RETURN_IF_ERROR(SetSerial(*certificate));
  WEFT_RETURN_IF_ERROR(SetTimes(*certificate, not_before, not_after));
  WEFT_RETURN_IF_ERROR(Check(X509_set_pubkey(certificate.get(), &key), "set a public key"));
  return certificate;
}

}  // namespace

absl::StatusOr<Identity> MakeAuthority(const std::string& name, absl::Time not_before,
                                       absl::Time not_after) {
  WEFT_ASSIGN_OR_RETURN(const OpenSsl<EVP_PKEY> key, NewKey());
  WEFT_ASSIGN_OR_RETURN(const OpenSsl<X509> made, NewCertificate(*key, not_before, not_after));
  X509_NAME* const subject = X509_get_subject_name(made.get());
  WEFT_RETURN_IF_ERROR(SetCommonName(subject, name));
  WEFT_RETURN_IF_ERROR(Check(X509_set_issuer_name(made.get(), subject), "name an authority"));
  for (const auto& [kind, value] : {std::pair(NID_basic_constraints, "critical,CA:TRUE,pathlen:0"),
                                    std::pair(NID_key_usage, "critical,keyCertSign"),
                                    std::pair(NID_subject_key_identifier, "hash")}) {
    WEFT_RETURN_IF_ERROR(AddExtension(*made, made.get(), kind, value));
  }
  return Finish(*made, *key, *key);
}

absl::StatusOr<Identity> IssueCertificate(const Identity& authority,
                                          const CertificateRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const CertificateStack issuers,
                        ReadCertificates(authority.certificate_pem));
  WEFT_ASSIGN_OR_RETURN(const OpenSsl<EVP_PKEY> signer, ReadPrivateKey(authority.private_key_pem));
  X509* const issuer = issuers.front().get();
  WEFT_ASSIGN_OR_RETURN(const OpenSsl<EVP_PKEY> key, NewKey());
  WEFT_ASSIGN_OR_RETURN(const OpenSsl<X509> made,
                        NewCertificate(*key, request.not_before, request.not_after));
  WEFT_RETURN_IF_ERROR(SetCommonName(X509_get_subject_name(made.get()), request.name));
  WEFT_RETURN_IF_ERROR(Check(X509_set_issuer_name(made.get(), X509_get_subject_name(issuer)),
                             "name a certificate's authority"));
  const bool serves = request.role == Role::kWorker || request.role == Role::kCoordinator;
  for (const auto& [kind, value] :
       {std::pair(NID_basic_constraints, "critical,CA:FALSE"),
        std::pair(NID_key_usage, "critical,digitalSignature"),
        std::pair(NID_ext_key_usage, serves ? "serverAuth,clientAuth" : "clientAuth"),
        std::pair(NID_subject_key_identifier, "hash"),
        std::pair(NID_authority_key_identifier, "keyid")}) {
    WEFT_RETURN_IF_ERROR(AddExtension(*made, issuer, kind, value));
  }
  WEFT_RETURN_IF_ERROR(AddAlternatives(*made, request));
  return Finish(*made, *key, *signer);
}

}  // namespace weft
