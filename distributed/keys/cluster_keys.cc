#include "distributed/keys/cluster_keys.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "distributed/job_token.h"
#include "distributed/keys/key_folder.h"
#include "distributed/keys/key_maker.h"
#include "platform/private_folder.h"
#include "platform/secret_file.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr char kAuthorityFolder[] = "authority";
constexpr absl::Duration kDay = absl::Hours(24);
constexpr absl::Duration kAuthorityLife = absl::Hours(3652 * 24);
constexpr absl::Duration kClockSlack = absl::Hours(1);

bool IsAddress(const std::string& text) {
  std::array<unsigned char, 16> bytes = {};
  return inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

// A host's name becomes that of a folder.
absl::Status CheckHostName(const std::string& name) {
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' ||
           c == ':';
  };
  const bool is_plain = !name.empty() && name.size() <= 253 && name[0] != '.' && name[0] != '-' &&
                        std::all_of(name.begin(), name.end(), fits) &&
                        (name.find(':') == std::string::npos || IsAddress(name));
  const bool is_taken = name == kAuthorityFolder || ParseRole(name) == Role::kCoordinator ||
                        ParseRole(name) == Role::kObserver;
  if (is_plain && !is_taken) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", absl::CEscape(name), "' cannot be the name of a host: ",
                   is_taken ? "a folder of keys is called so"
                            : "use letters, digits, '.', '-' and '_', or an address"));
}

// The authority's key and certificate, in one file as those of hosts are.
absl::StatusOr<Identity> ReadAuthority(const std::string& folder) {
  WEFT_ASSIGN_OR_RETURN(std::string pem,
                        ReadSecretFile(absl::StrCat(folder, "/", kIdentityFile), kMaxFileBytes,
                                       "key file", "and keep it where the others are not"));
  // Each of them is found in the text of both.
  return Identity{pem, pem};
}

absl::StatusOr<std::unique_ptr<PrivateFolder>> OpenFolderOf(const ClusterKeysOptions& options,
                                                            const std::string& name) {
  return OpenPrivateFolder(absl::StrCat(options.folder, "/", name));
}

struct Authority {
  Identity identity;
  std::string certificate_pem;  // alone
  bool is_new = false;
};

absl::StatusOr<Authority> FindOrMakeAuthority(const ClusterKeysOptions& options) {
  const std::string path = absl::StrCat(options.folder, "/", kAuthorityFolder);
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<PrivateFolder> folder, OpenPrivateFolder(path));
  absl::StatusOr<Identity> found = ReadAuthority(path);
  if (found.ok()) {
    WEFT_ASSIGN_OR_RETURN(std::string certificate, folder->Read(kAuthorityFile, kMaxFileBytes));
    return Authority{*std::move(found), std::move(certificate), false};
  }
  if (!absl::IsNotFound(found.status())) return found.status();
  WEFT_ASSIGN_OR_RETURN(const std::string random, NewJobToken());
  WEFT_ASSIGN_OR_RETURN(Identity made,
                        MakeAuthority(absl::StrCat("Weft cluster ", random.substr(0, 8)),
                                      options.now - kClockSlack, options.now + kAuthorityLife));
  WEFT_RETURN_IF_ERROR(folder->Write(kAuthorityFile, made.certificate_pem));
  WEFT_RETURN_IF_ERROR(folder->Write(kIdentityFile, made.pem()));
  std::string certificate = made.certificate_pem;
  return Authority{std::move(made), std::move(certificate), true};
}

// The token of the cluster, made once: it lies beside the authority.
absl::StatusOr<std::string> FindOrMakeToken(const ClusterKeysOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<PrivateFolder> folder,
                        OpenFolderOf(options, kAuthorityFolder));
  const std::string path = absl::StrCat(options.folder, "/", kAuthorityFolder, "/", kTokenFile);
  absl::StatusOr<std::string> found = ReadTokenFile(path);
  if (found.ok() || !absl::IsNotFound(found.status())) return found;
  WEFT_ASSIGN_OR_RETURN(const std::string token, NewJobToken());
  WEFT_RETURN_IF_ERROR(folder->Write(kTokenFile, absl::StrCat(token, "\n")));
  return token;
}

CertificateRequest RequestFor(const HostNames& host, Role role, const ClusterKeysOptions& options) {
  CertificateRequest request;
  request.name = host.name;
  request.addresses = host.addresses;
  if (role == Role::kWorker) {
    (IsAddress(host.name) ? request.addresses : request.names).push_back(host.name);
  }
  request.role = role;
  request.not_before = options.now - kClockSlack;
  request.not_after = options.now + options.days * kDay;
  return request;
}

}  // namespace

absl::StatusOr<std::vector<HostNames>> ParseHosts(std::string_view text) {
  std::vector<HostNames> hosts;
  const absl::string_view all(text.data(), text.size());
  for (const absl::string_view entry : absl::StrSplit(all, ',')) {
    const std::vector<std::string> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    HostNames host{parts[0], {}};
    WEFT_RETURN_IF_ERROR(CheckHostName(host.name));
    if (parts.size() > 1) host.addresses = absl::StrSplit(parts[1], '+');
    for (const std::string& address : host.addresses) {
      if (IsAddress(address)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("'", absl::CEscape(address), "' after '", host.name,
                       "=' is no IPv4 or IPv6 address; join several with '+'"));
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

absl::StatusOr<ClusterKeys> MakeClusterKeys(const ClusterKeysOptions& options) {
  if (options.hosts.empty()) return absl::InvalidArgumentError("no host to make keys for");
  if (options.days < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("certificates cannot be valid for ", options.days, " days; at least 1"));
  }
  std::set<std::string> names;
  for (const HostNames& host : options.hosts) {
    WEFT_RETURN_IF_ERROR(CheckHostName(host.name));
    if (names.insert(host.name).second) continue;
    return absl::InvalidArgumentError(absl::StrCat("host '", host.name, "' is given twice"));
  }
  WEFT_RETURN_IF_ERROR(OpenPrivateFolder(options.folder).status());
  WEFT_ASSIGN_OR_RETURN(const Authority authority, FindOrMakeAuthority(options));
  WEFT_ASSIGN_OR_RETURN(const std::string token, FindOrMakeToken(options));
  ClusterKeys result;
  result.is_new_authority = authority.is_new;
  WEFT_ASSIGN_OR_RETURN(result.authority, ParseCertificate(authority.certificate_pem));
  if (result.authority.not_after < options.now + options.days * kDay) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the authority in ", options.folder, "/", kAuthorityFolder, " is valid until ",
        DateText(result.authority.not_after), ", not for ", options.days,
        " days: ask for fewer (--days), or make keys with a new authority in another folder"));
  }
  std::vector<std::pair<HostNames, Role>> wanted;
  for (const HostNames& host : options.hosts) wanted.emplace_back(host, Role::kWorker);
  for (const Role role : {Role::kCoordinator, Role::kObserver}) {
    wanted.emplace_back(HostNames{std::string(RoleName(role)), {}}, role);
  }
  for (const auto& [host, role] : wanted) {
    WEFT_ASSIGN_OR_RETURN(const Identity identity,
                          IssueCertificate(authority.identity, RequestFor(host, role, options)));
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<PrivateFolder> folder,
                          OpenFolderOf(options, host.name));
    WEFT_RETURN_IF_ERROR(folder->Write(kAuthorityFile, authority.certificate_pem));
    WEFT_RETURN_IF_ERROR(folder->Write(kTokenFile, absl::StrCat(token, "\n")));
    WEFT_RETURN_IF_ERROR(folder->Write(kIdentityFile, identity.pem()));
    WEFT_ASSIGN_OR_RETURN(Certificate certificate, ParseCertificate(identity.certificate_pem));
    result.made.push_back({absl::StrCat(options.folder, "/", host.name), std::move(certificate)});
  }
  return result;
}

}  // namespace weft
