#include "tests/attacks/attacked_worker.h"

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/job_token.h"
#include "distributed/keys/cluster_keys.h"
#include "distributed/keys/key_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/private_folder.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Where the tests' workers are, as certificates have it.
constexpr char kHost[] = "127.0.0.1";
constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr absl::Duration kDay = absl::Hours(24);
constexpr absl::Duration kStartTimeout = absl::Seconds(60);

// "" where there is none.
std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The number of a line "NAME:   123 kB" of a process's status, in bytes; -1 where it is missing.
int64_t StatusBytes(int64_t pid, std::string_view name) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  for (std::string word; file >> word;) {
    if (word != absl::StrCat(std::string(name), ":")) continue;
    int64_t kibibytes = 0;
    file >> kibibytes;
    return kibibytes << 10;
  }
  return -1;
}

// The end of what follows "listening on ", once its line is whole.
std::string AddressIn(const std::string& log) {
  constexpr std::string_view kBefore = "listening on ";
  const size_t at = log.find(kBefore);
  const size_t end = at == std::string::npos ? at : log.find('\n', at);
  if (end == std::string::npos) return "";
  return log.substr(at + kBefore.size(), end - at - kBefore.size());
}

// The letters of the private keys of a PEM text, without the beginning that all keys have.
std::vector<std::string> KeysIn(const std::string& pem) {
  constexpr std::string_view kBegin = "PRIVATE KEY-----\n";
  constexpr size_t kSame = 24;  // of PKCS #8 for Ed25519
  std::vector<std::string> keys;
  for (size_t at = pem.find("BEGIN PRIVATE KEY"); at != std::string::npos;
       at = pem.find("BEGIN PRIVATE KEY", at + 1)) {
    const size_t begin = pem.find(kBegin, at) + kBegin.size() + kSame;
    const size_t end = pem.find('\n', begin);
    if (end != std::string::npos) keys.push_back(pem.substr(begin, end - begin));
  }
  return keys;
}

}  // namespace

CertificateRequest RequestOf(Role role) {
  CertificateRequest request;
  request.name = "forged";
  request.addresses = {kHost};
  request.role = role;
  request.not_before = absl::Now() - kDay;
  request.not_after = absl::Now() + kDay;
  return request;
}

std::string StartWorker(const Arguments& more, const std::string& log,
                        std::unique_ptr<Process>& process) {
  const char* const runner = std::getenv("WEFT_RUNNER");
  EXPECT_NE(runner, nullptr) << "WEFT_RUNNER is not set";
  if (runner == nullptr) return "";
  ProcessOptions options;
  options.arguments = Arguments{runner, "worker", "--listen", absl::StrCat(kHost, ":0")} + more;
  options.standard_output = {ProcessOutput::Kind::kFile, log};
  options.standard_error = {ProcessOutput::Kind::kFile, log};
  auto started = RealProcessLauncher().Start(options);
  EXPECT_TRUE(started.ok()) << started.status();
  if (!started.ok()) return "";
  process = *std::move(started);
  std::string address;
  for (const absl::Time end = absl::Now() + kStartTimeout;
       address.empty() && absl::Now() < end && !process->Poll().has_value();) {
    absl::SleepFor(absl::Milliseconds(20));
    address = AddressIn(TextOf(log));
  }
  EXPECT_NE(address, "") << TextOf(log);
  return address;
}

std::unique_ptr<AttackedWorker> AttackedWorker::Start(Door door) {
  std::string folder = (std::filesystem::temp_directory_path() / "weft-attacked-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    ADD_FAILURE() << "no temporary folder";
    return nullptr;
  }
  std::unique_ptr<AttackedWorker> worker(new AttackedWorker(folder, door));
  worker->MakeFiles();
  worker->Launch();
  return worker->address_.empty() ? nullptr : std::move(worker);
}

AttackedWorker::~AttackedWorker() {
  process_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void AttackedWorker::MakeFiles() {
  std::filesystem::create_directories(Path("data"));
  std::filesystem::create_directories(Path("saved"));
  const CommandResult made = RunCommand({"example", "mlp", "-o", Path("mlp.onnx")});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  WriteTestFile(DataPath("x.npy"), ToNpy(RandomTensor({16, 1, 28, 28}, 1)).value());
  WriteTestFile(DataPath("y.npy"), ToNpy(RandomTensor({16}, 2, 0, 10, DType::kInt64)).value());
  if (door_ == Door::kKeys) {
    const auto keys = MakeClusterKeys(
        {Path("keys"), ParseHosts(absl::StrCat(kHost, ",b")).value(), 30, absl::Now()});
    EXPECT_TRUE(keys.ok()) << keys.status();
  } else {
    const auto token = NewJobToken();
    EXPECT_TRUE(token.ok() && WriteTokenFile(Path("token"), *token).ok());
  }
}

void AttackedWorker::Launch() {
  const Arguments opened = door_ == Door::kKeys ? Arguments{"--keys", KeyFolder(kHost)}
                                                : Arguments{"--token-file", Path("token")};
  address_ = StartWorker(Arguments{"--data-root", Path("data"), "--checkpoint-root", Path("saved"),
                                   "--log-level", "debug"} +
                             opened,
                         Path("worker.log"), process_);
  WriteTestFile(Path("cluster.yaml"),
                absl::StrCat("hosts:\n  - name: attacked\n    workers:\n      - {address: '",
                             address_, "', threads: 1}\n"));
}

Arguments AttackedWorker::Job(const std::string& images, const std::string& labels,
                              int steps) const {
  return {"train",   Path("mlp.onnx"),           "--cluster", Path("cluster.yaml"),
          "--data",  absl::StrCat("x=", images), "--labels",  labels,
          "--loss",  "softmax_cross_entropy",    "--batch",   "4",
          "--steps", absl::StrCat(steps)};
}

Arguments AttackedWorker::Credentials() const {
  if (door_ == Door::kKeys) return {"--keys", KeyFolder("coordinator")};
  return {"--token-file", Path("token")};
}

std::string AttackedWorker::ReadKeyFile(const std::string& folder, const std::string& file) const {
  const auto opened = OpenPrivateFolder(KeyFolder(folder));
  EXPECT_TRUE(opened.ok()) << opened.status();
  if (!opened.ok()) return "";
  const auto text = (*opened)->Read(file, kMaxFileBytes);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

Identity AttackedWorker::Authority() const {
  const std::string pem = ReadKeyFile("authority", kIdentityFile);
  return {pem, pem};  // each is found in the text of both
}

std::string AttackedWorker::token() const {
  const auto token = ReadTokenFile(door_ == Door::kKeys ? KeyFolder("authority") + "/" + kTokenFile
                                                        : Path("token"));
  EXPECT_TRUE(token.ok()) << token.status();
  return token.value_or("");
}

std::string AttackedWorker::ForgeKeys(const std::string& name, const std::string& authority_pem,
                                      const std::string& identity_pem) {
  const auto folder = OpenPrivateFolder(KeyFolder(name));
  EXPECT_TRUE(folder.ok()) << folder.status();
  if (!folder.ok()) return "";
  EXPECT_TRUE((*folder)->Write(kAuthorityFile, authority_pem).ok());
  EXPECT_TRUE((*folder)->Write(kIdentityFile, identity_pem).ok());
  EXPECT_TRUE((*folder)->Write(kTokenFile, absl::StrCat(token(), "\n")).ok());
  return KeyFolder(name);
}

std::string AttackedWorker::Log() const { return TextOf(Path("worker.log")); }

void AttackedWorker::ForgetPeakMemory() const {
  // See proc(5), clear_refs.
  std::ofstream(absl::StrCat("/proc/", process_->id(), "/clear_refs")) << "5";
}

int64_t AttackedWorker::PeakMemory() const { return StatusBytes(process_->id(), "VmHWM"); }

void AttackedWorker::ExpectNoSecret(const std::string& text) const {
  EXPECT_THAT(text, Not(HasSubstr("PRIVATE KEY")));
  EXPECT_THAT(text, Not(HasSubstr(token())));
  if (door_ != Door::kKeys) return;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(Path("keys"))) {
    if (entry.path().filename() != kIdentityFile) continue;
    for (const std::string& key : KeysIn(TextOf(entry.path().string()))) {
      EXPECT_GE(key.size(), 32u) << entry.path();
      EXPECT_THAT(text, Not(HasSubstr(key)));
    }
  }
}

void AttackedWorker::ExpectUnharmed() const {
  ASSERT_TRUE(is_running()) << "the worker has ended: " << process_->Poll()->DebugString();
  const std::string model = Path("honest.onnx");
  std::filesystem::remove(model);
  const CommandResult honest = RunProgram(Job(2) + Credentials() + Arguments{"-o", model});
  EXPECT_EQ(honest.exit_code, 0) << honest.err;
  EXPECT_TRUE(std::filesystem::exists(model));
  EXPECT_TRUE(is_running());
  ExpectNoSecret(absl::StrCat(honest.out, honest.err, Log()));
}

}  // namespace weft::testing
