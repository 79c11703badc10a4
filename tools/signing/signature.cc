#include "tools/signing/signature.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "platform/text/json_limits.h"
#include "tools/signing/sha256.h"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr char kPayloadType[] = "application/vnd.in-toto+json";
constexpr char kStatementType[] = "https://in-toto.io/Statement/v1";
constexpr char kPredicateType[] = "urn:weft:signed-files:v1";
constexpr int64_t kMaxSignatureBytes = 64 << 20;
// Of the envelope and of the list in it: lists of objects of objects.
constexpr JsonLimits kLimits = {.bytes = kMaxSignatureBytes, .depth = 8};
// Signatures in an envelope that are looked at.
constexpr size_t kMaxSignatures = 16;

// What is signed: type and payload, each with its length, so that no payload of another type can
// have the same bytes (DSSE 1.0, PAE).
std::string PreAuthenticationEncoding(std::string_view payload) {
  return absl::StrCat("DSSEv1 ", sizeof(kPayloadType) - 1, " ", kPayloadType, " ", payload.size(),
                      " ", absl::string_view(payload.data(), payload.size()));
}

absl::Status Denied(const std::string& what) { return absl::PermissionDeniedError(what); }

// The text at `key`; null where the object has none.
const std::string* TextAt(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : found->get_ptr<const std::string*>();
}

bool Unbase64(const std::string& text, std::string& bytes) {
  return absl::Base64Unescape(text, &bytes);
}

std::string Escaped(const std::string& text) { return absl::Utf8SafeCEscape(text); }

absl::StatusOr<std::vector<SignedFile>> FilesOf(const std::string& payload) {
  const absl::Status within = CheckJsonLimits(payload, kLimits);
  if (!within.ok()) return Denied(absl::StrCat("what it signs is ", within.message()));
  const Json statement = Json::parse(payload, nullptr, /*allow_exceptions=*/false);
  const std::string* const type = TextAt(statement, "_type");
  const std::string* const predicate = TextAt(statement, "predicateType");
  const bool is_known = type != nullptr && *type == kStatementType && predicate != nullptr &&
                        *predicate == kPredicateType && statement.contains("subject") &&
                        statement["subject"].is_array();
  if (!is_known) return Denied("what it signs is no list of files of this program");
  std::vector<SignedFile> files;
  for (const Json& subject : statement["subject"]) {
    const std::string* const name = TextAt(subject, "name");
    const bool has_digest = name != nullptr && subject.contains("digest");
    const std::string* const digest = has_digest ? TextAt(subject["digest"], "sha256") : nullptr;
    if (digest == nullptr) return Denied("a file that it signs has no name or no SHA-256");
    files.push_back({*name, *digest});
  }
  return files;
}

class SignedManifest final : public FileManifest {
 public:
  SignedManifest(std::vector<SignedFile> files, std::string signature)
      : files_(std::move(files)), signature_(std::move(signature)) {}

  absl::Status Check(const std::string& name, std::span<const std::byte> bytes) const override {
    const auto file = std::find_if(files_.begin(), files_.end(),
                                   [&](const SignedFile& known) { return known.name == name; });
    if (file == files_.end()) {
      return Denied(absl::StrCat("\"", Escaped(name), "\" is not among the files that \"",
                                 Escaped(signature_), "\" signs"));
    }
    const std::string seen = Sha256Hex(bytes);
    if (!seen.empty() && seen == file->sha256) return absl::OkStatus();
    return Denied(absl::StrCat("\"", Escaped(name), "\" is not the file that \"",
                               Escaped(signature_), "\" signs: its SHA-256 is ", seen,
                               ", signed is ", Escaped(file->sha256)));
  }

 private:
  const std::vector<SignedFile> files_;
  const std::string signature_;
};

}  // namespace

std::string SignaturePath(const std::string& path) { return absl::StrCat(path, ".sig"); }

SignedFile DescribeSignedFile(const std::string& name, std::span<const std::byte> bytes) {
  return {name, Sha256Hex(bytes)};
}

absl::StatusOr<std::string> SignatureText(const std::vector<SignedFile>& files,
                                          const SigningKey& key) {
  Json subjects = Json::array();
  for (const SignedFile& file : files) {
    if (file.sha256.empty()) return absl::InternalError("OpenSSL could not read a file");
    Json subject = Json::object();
    subject["name"] = file.name;
    subject["digest"]["sha256"] = file.sha256;
    subjects.push_back(std::move(subject));
  }
  Json statement = Json::object();
  statement["_type"] = kStatementType;
  statement["predicateType"] = kPredicateType;
  statement["subject"] = std::move(subjects);
  const std::string payload = statement.dump(-1, ' ', false, Json::error_handler_t::replace);
  WEFT_ASSIGN_OR_RETURN(const std::string signature, key.Sign(PreAuthenticationEncoding(payload)));
  Json entry = Json::object();
  entry["keyid"] = key.verifying_key().id();
  entry["sig"] = absl::Base64Escape(signature);
  Json envelope = Json::object();
  envelope["payload"] = absl::Base64Escape(payload);
  envelope["payloadType"] = kPayloadType;
  envelope["signatures"] = Json::array({std::move(entry)});
  return absl::StrCat(envelope.dump(1), "\n");
}

absl::StatusOr<std::vector<SignedFile>> VerifySignature(std::string_view text,
                                                        const std::vector<VerifyingKey>& keys) {
  const absl::Status within = CheckJsonLimits(text, kLimits);
  if (!within.ok()) return Denied(absl::StrCat("it is ", within.message()));
  const Json envelope = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const std::string* const type = TextAt(envelope, "payloadType");
  const std::string* const encoded = TextAt(envelope, "payload");
  const bool is_envelope = type != nullptr && encoded != nullptr &&
                           envelope.contains("signatures") && envelope["signatures"].is_array();
  std::string payload;
  if (!is_envelope || *type != kPayloadType || !Unbase64(*encoded, payload)) {
    return Denied("it is no DSSE envelope with a list of files");
  }
  const std::string message = PreAuthenticationEncoding(payload);
  const Json& signatures = envelope["signatures"];
  for (size_t i = 0; i < std::min(signatures.size(), kMaxSignatures); ++i) {
    const std::string* const sig = TextAt(signatures[i], "sig");
    std::string signature;
    if (sig == nullptr || !Unbase64(*sig, signature)) continue;
    // The id of the key is a hint of who wrote it: it decides nothing.
    for (const VerifyingKey& key : keys) {
      if (key.Verifies(message, signature)) return FilesOf(payload);
    }
  }
  const auto id = [](std::string* out, const VerifyingKey& key) { out->append(key.id()); };
  return Denied(absl::StrCat("none of its signatures is by a key of --require-signature (SHA-256 ",
                             absl::StrJoin(keys, ", ", id), ")"));
}

absl::StatusOr<std::shared_ptr<const FileManifest>> SignatureVerifier::Verify(
    FileSystem& files, const std::string& path, std::span<const std::byte> bytes) const {
  const std::string signature = SignaturePath(path);
  const auto text = files.ReadFileUpTo(signature, kMaxSignatureBytes);
  if (absl::IsNotFound(text.status())) {
    return Denied(absl::StrCat(
        "\"", Escaped(path), "\" has no signature, \"", Escaped(signature),
        "\", and --require-signature asks for one; whoever answers for it makes it with "
        "graph_runner ckpt sign"));
  }
  if (!text.ok()) return text.status();
  auto known = VerifySignature(*text, keys_);
  if (!known.ok()) {
    return Annotate(known.status(), absl::StrCat("signature \"", Escaped(signature), "\""));
  }
  // Whoever moves a file may rename it: what it holds decides.
  const std::string seen = Sha256Hex(bytes);
  const bool is_signed =
      !seen.empty() && std::any_of(known->begin(), known->end(),
                                   [&](const SignedFile& file) { return file.sha256 == seen; });
  if (!is_signed) {
    return Denied(absl::StrCat("\"", Escaped(path), "\" is not a file that \"", Escaped(signature),
                               "\" signs: its SHA-256 is ", seen));
  }
  return std::make_shared<const SignedManifest>(*std::move(known), signature);
}

}  // namespace weft
