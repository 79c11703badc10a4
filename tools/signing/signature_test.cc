#include "tools/signing/signature.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "platform/file_system.h"
#include "tools/signing/sha256.h"
#include "tools/signing/signed_set.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Test 2 of RFC 8032, section 7.1, in PEM form; the id is what
// `openssl pkey -pubout -outform DER | sha256sum` says of it.
constexpr char kPrivate[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n"
    "-----END PRIVATE KEY-----\n";
constexpr char kPublic[] =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\n"
    "-----END PUBLIC KEY-----\n";
constexpr char kId[] = "deb2ded39dc26fce0e6085b6fc34bf6b5941913bbfe2ea614113cff9e004c170";
constexpr char kSignatureOf72[] =
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";
// Test 1 of the same section: public key alone.
constexpr char kOtherPublic[] =
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
    "-----END PUBLIC KEY-----\n";

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class SignatureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft-signature-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    Write("private.pem", kPrivate);
    ASSERT_EQ(chmod((folder_ + "/private.pem").c_str(), 0600), 0);
    Write("public.pem", kPublic);
    Write("other.pem", kOtherPublic);
  }
  void TearDown() override {
    SetFileVerifier(nullptr);
    std::filesystem::remove_all(folder_);
  }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(folder_, "/", name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  SigningKey Private() { return SigningKey::Read(folder_ + "/private.pem").value(); }
  VerifyingKey Public(const std::string& name = "public.pem") {
    return VerifyingKey::Read(RealFileSystem(), absl::StrCat(folder_, "/", name)).value();
  }
  std::string DeniedBy(const std::vector<VerifyingKey>& keys, const std::string& path) {
    const SignatureVerifier verifier(keys);
    const std::string text = RealFileSystem().ReadFile(path).value();
    const auto manifest = verifier.Verify(RealFileSystem(), path, BytesOf(text));
    EXPECT_EQ(manifest.status().code(), absl::StatusCode::kPermissionDenied) << manifest.status();
    return std::string(manifest.status().message());
  }

  std::string folder_;
};

TEST(Sha256, IsThatOfTheStandard) {
  // FIPS 180-4's examples, and a million times "a".
  EXPECT_EQ(Sha256Hex(BytesOf("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex(BytesOf(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_F(SignatureTest, KeysAreThoseOfRfc8032) {
  const SigningKey key = Private();
  EXPECT_EQ(key.verifying_key().id(), kId);
  EXPECT_EQ(Public().id(), kId);
  const auto signature = key.Sign("\x72");
  ASSERT_TRUE(signature.ok()) << signature.status();
  EXPECT_EQ(absl::BytesToHexString(*signature), kSignatureOf72);
  EXPECT_TRUE(Public().Verifies("\x72", *signature));
  EXPECT_FALSE(Public().Verifies("\x73", *signature));
  EXPECT_FALSE(Public().Verifies("\x72", signature->substr(1)));
  EXPECT_FALSE(Public().Verifies("\x72", ""));
  EXPECT_FALSE(Public("other.pem").Verifies("\x72", *signature));
}

TEST_F(SignatureTest, AKeyThatOthersCanReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0660, 0644}) {
    ASSERT_EQ(chmod((folder_ + "/private.pem").c_str(), mode), 0);
    const auto key = SigningKey::Read(folder_ + "/private.pem");
    EXPECT_EQ(key.status().code(), absl::StatusCode::kPermissionDenied) << key.status();
    EXPECT_THAT(std::string(key.status().message()), HasSubstr("chmod 600"));
  }
}

TEST_F(SignatureTest, WhatIsNoKeyIsRefusedByName) {
  const std::string path = Write("bad.pem", "no key");
  EXPECT_THAT(std::string(VerifyingKey::Read(RealFileSystem(), path).status().message()),
              AllOf(HasSubstr("bad.pem"), HasSubstr("PUBLIC KEY")));
  // A private key is no public one.
  EXPECT_FALSE(VerifyingKey::Read(RealFileSystem(), folder_ + "/private.pem").ok());
  EXPECT_EQ(VerifyingKey::Read(RealFileSystem(), folder_ + "/none.pem").status().code(),
            absl::StatusCode::kNotFound);
}

// The bytes that are signed are spelled out here: DSSE 1.0, "DSSEv1 LEN TYPE LEN PAYLOAD".
TEST_F(SignatureTest, IsADsseEnvelopeWithAnInTotoStatement) {
  const auto text = SignatureText({{"a", "00ff"}}, Private());
  ASSERT_TRUE(text.ok()) << text.status();
  const auto envelope = nlohmann::json::parse(*text);
  EXPECT_EQ(envelope["payloadType"], "application/vnd.in-toto+json");
  std::string payload;
  ASSERT_TRUE(absl::Base64Unescape(envelope["payload"].get<std::string>(), &payload));
  const auto statement = nlohmann::json::parse(payload);
  EXPECT_EQ(statement["_type"], "https://in-toto.io/Statement/v1");
  EXPECT_EQ(statement["subject"][0]["name"], "a");
  EXPECT_EQ(statement["subject"][0]["digest"]["sha256"], "00ff");
  EXPECT_EQ(envelope["signatures"][0]["keyid"], kId);
  std::string signature;
  ASSERT_TRUE(
      absl::Base64Unescape(envelope["signatures"][0]["sig"].get<std::string>(), &signature));
  EXPECT_TRUE(Public().Verifies(
      absl::StrCat("DSSEv1 28 application/vnd.in-toto+json ", payload.size(), " ", payload),
      signature));
}

TEST_F(SignatureTest, ASignedFileIsTakenAndAChangedOneIsNot) {
  const std::string path = Write("weights.bin", "some weights");
  const auto written = SignPath(RealFileSystem(), path, Private());
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->path, path + ".sig");
  EXPECT_THAT(written->files,
              ElementsAre(SignedFile{"weights.bin", Sha256Hex(BytesOf("some weights"))}));
  const SignatureVerifier verifier({Public("other.pem"), Public()});
  EXPECT_TRUE(verifier.Verify(RealFileSystem(), path, BytesOf("some weights")).ok());
  Write("weights.bin", "some weightt");
  EXPECT_THAT(DeniedBy({Public()}, path), HasSubstr("is not a file that"));
}

TEST_F(SignatureTest, ErrorsSayWhatIsMissing) {
  const std::string path = Write("weights.bin", "some weights");
  EXPECT_THAT(DeniedBy({Public()}, path),
              AllOf(HasSubstr("weights.bin\" has no signature"), HasSubstr("ckpt sign")));
  ASSERT_TRUE(SignPath(RealFileSystem(), path, Private()).ok());
  EXPECT_THAT(DeniedBy({Public("other.pem")}, path),
              AllOf(HasSubstr("weights.bin.sig"), HasSubstr("none of its signatures"),
                    HasSubstr(Public("other.pem").id())));
  for (const char* const bad : {"", "{", "[]", "null", "{\"payload\":1}"}) {
    Write("weights.bin.sig", bad);
    EXPECT_THAT(DeniedBy({Public()}, path), HasSubstr("no DSSE envelope")) << bad;
  }
}

// No bit of the text can be changed and the result be taken for another list of files.
TEST_F(SignatureTest, AFlippedBitOfTheTextNeverSignsAnotherFile) {
  const std::vector<SignedFile> files = {{"index.json", std::string(64, 'a')},
                                         {"rank-00000.safetensors", std::string(64, 'b')}};
  const std::string text = SignatureText(files, Private()).value();
  int taken = 0;
  for (size_t bit = 0; bit < text.size() * 8; bit += 3) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    const auto seen = VerifySignature(changed, {Public()});
    if (!seen.ok()) continue;
    // What is left are white space and the id of the key, which decide nothing.
    EXPECT_EQ(*seen, files) << "bit " << bit;
    ++taken;
  }
  EXPECT_LT(taken, 400);
}

TEST_F(SignatureTest, OtherFilesAreFoundByNameAndContent) {
  const std::string path = Write("index.json", "the index");
  const std::string text =
      SignatureText({DescribeSignedFile("index.json", BytesOf("the index")),
                     DescribeSignedFile("rank-00000.safetensors", BytesOf("weights"))},
                    Private())
          .value();
  Write("index.json.sig", text);
  const auto manifest =
      SignatureVerifier({Public()}).Verify(RealFileSystem(), path, BytesOf("the index"));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_TRUE((*manifest)->Check("rank-00000.safetensors", BytesOf("weights")).ok());
  const absl::Status changed = (*manifest)->Check("rank-00000.safetensors", BytesOf("weighty"));
  EXPECT_EQ(changed.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(changed.message()),
              AllOf(HasSubstr("rank-00000.safetensors"), HasSubstr("its SHA-256 is")));
  EXPECT_THAT(std::string((*manifest)->Check("rank-00001.safetensors", BytesOf("x")).message()),
              HasSubstr("is not among the files"));
  // The same contents under another file's name are another file.
  EXPECT_FALSE((*manifest)->Check("index.json", BytesOf("weights")).ok());
}

TEST_F(SignatureTest, WithoutAVerifierNothingIsVerified) {
  EXPECT_FALSE(HasFileVerifier());
  const auto none = VerifyFile(RealFileSystem(), "/nowhere", {});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, nullptr);
  SetFileVerifier(std::make_shared<const SignatureVerifier>(std::vector<VerifyingKey>{Public()}));
  EXPECT_TRUE(HasFileVerifier());
  EXPECT_FALSE(VerifyFile(RealFileSystem(), folder_ + "/none", {}).ok());
}

}  // namespace
}  // namespace weft
