// Each system library compiles, links and does one thing: a missing or wrong package shows here, by
// name.

#include <leptonica/allheaders.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <re2/re2.h>
#include <seccomp.h>
#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "benchmark/benchmark.h"
#include "coin/CbcModel.hpp"
#include "coin/OsiClpSolverInterface.hpp"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "nlohmann/json.hpp"
#include "oneapi/dnnl/dnnl.hpp"
#include "onnx/onnx_pb.h"
#include "rapidcheck.h"
#include "third_party/echo.grpc.pb.h"
#include "xxhash.h"
#include "yaml-cpp/yaml.h"

namespace weft {
namespace {

TEST(Libraries, Abseil) {
  absl::flat_hash_map<std::string, int> map = {{"one", 1}};
  EXPECT_EQ(absl::StrFormat("%d", map.at("one")), "1");
  EXPECT_GT(absl::Now(), absl::UnixEpoch());
}

TEST(Libraries, Benchmark) { EXPECT_GT(benchmark::CPUInfo::Get().num_cpus, 0); }

TEST(Libraries, Cbc) {
  // The most of x with 2 x <= 5: two and a half, of whole numbers two.
  OsiClpSolverInterface program;
  program.messageHandler()->setLogLevel(0);
  program.addCol(0, nullptr, nullptr, 0, 10, -1);
  const int column = 0;
  const double two = 2;
  program.addRow(1, &column, &two, -10, 5);
  program.setInteger(0);
  CbcModel model(program);
  model.setLogLevel(0);
  model.branchAndBound();
  ASSERT_TRUE(model.isProvenOptimal());
  EXPECT_NEAR(model.bestSolution()[0], 2, 1e-6);
}

TEST(Libraries, Cli11) {
  CLI::App app;
  int steps = 0;
  app.add_option("--steps", steps);
  app.parse("--steps 3");
  EXPECT_EQ(steps, 3);
}

TEST(Libraries, Grpc) {
  third_party::EchoMessage message;
  message.set_text("hello");
  third_party::EchoMessage copy;
  ASSERT_TRUE(copy.ParseFromString(message.SerializeAsString()));
  EXPECT_EQ(copy.text(), "hello");
  EXPECT_STREQ(third_party::Echo::service_full_name(), "weft.third_party.Echo");
}

TEST(Libraries, Highway) { EXPECT_NE(hwy::SupportedTargets(), 0); }

TEST(Libraries, Json) {
  EXPECT_EQ(nlohmann::json::parse("{\"a\": 1}", nullptr, false)["a"], 1);
  EXPECT_TRUE(nlohmann::json::parse("{", nullptr, false).is_discarded());
}

TEST(Libraries, Leptonica) {
  // A bitmap of one grey pixel.
  const std::string image = "P5 1 1 255\n\x80";
  PIX* pix = pixReadMem(reinterpret_cast<const l_uint8*>(image.data()), image.size());
  ASSERT_NE(pix, nullptr);
  EXPECT_EQ(pixGetWidth(pix), 1);
  pixDestroy(&pix);
}

TEST(Libraries, OneDnn) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  EXPECT_EQ(engine.get_kind(), dnnl::engine::kind::cpu);
}

TEST(Libraries, Onnx) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  EXPECT_EQ(model.ir_version(), 8);
}

TEST(Libraries, Rapidcheck) {
  EXPECT_TRUE(rc::check("addition commutes", [](int16_t a, int16_t b) { return a + b == b + a; }));
}

TEST(Libraries, OpenSsl) {
  EVP_PKEY* const key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(EVP_PKEY_id(key), EVP_PKEY_ED25519);
  EVP_PKEY_free(key);
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION), 1);
  SSL_CTX_free(context);
}

TEST(Libraries, Re2) { EXPECT_TRUE(RE2::FullMatch("weft", "[a-w]+t")); }

TEST(Libraries, Seccomp) {
  const scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  ASSERT_NE(filter, nullptr);
  EXPECT_EQ(seccomp_rule_add(filter, SCMP_ACT_ERRNO(1), SCMP_SYS(socket), 0), 0);
  seccomp_release(filter);
}

TEST(Libraries, XxHash) {
  // XXH3-64 of no bytes with seed 0, from the reference implementation's own tests.
  EXPECT_EQ(XXH3_64bits(nullptr, 0), 0x2D06800538D394C2u);
}

TEST(Libraries, YamlCpp) {
  const YAML::Node node = YAML::Load("hosts:\n  - a");
  EXPECT_EQ(node["hosts"].Mark().line, 1);
}

TEST(Libraries, Zlib) {
  const std::vector<uint8_t> bytes = {1, 2, 3};
  EXPECT_NE(crc32(0, bytes.data(), bytes.size()), 0u);
}

}  // namespace
}  // namespace weft
