// Keys are made anew while a job trains, and the authority is changed over as docs/security.md
// says: no step fails, each new key counts for connections within seconds, and the weights are
// those of a job whose keys stayed.
//
// WEFT_RUNNER: graph_runner. WEFT_ROTATIONS: how often, each after ten steps (6).
#include <stdlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "distributed/coordinator.h"
#include "distributed/job_token.h"
#include "distributed/keys/cluster_keys.h"
#include "distributed/keys/key_folder.h"
#include "distributed/keys/key_ring.h"
#include "distributed/keys/tls_probe.h"
#include "distributed/process/local_cluster.h"
#include "gmock/gmock.h"
#include "graph/cluster_spec.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/file_system.h"
#include "platform/private_folder.h"
#include "platform/process.h"
#include "platform/status_macros.h"
#include "tests/attacks/attacked_worker.h"
#include "tests/command_run.h"
#include "tools/console/version.h"
#include "training/data/data_file.h"
#include "training/data/data_set.h"
#include "training/job/job.h"
#include "training/job/trainer.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kStepsBetween = 10;
constexpr int kWorkers = 2;
// Every so many rotations change the authority, too.
constexpr int kAuthorityEvery = 10;
constexpr int64_t kSamples = 64;
constexpr int kFeatures = 8;
constexpr int kClasses = 4;
constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr absl::Duration kPatience = absl::Seconds(30);

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int64_t CountOf(const std::string& text, std::string_view part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

ValueType Floats(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat32, SymbolicShape(std::move(dims))};
}

// scores [N,4] = x [N,8] times w [8,4].
absl::StatusOr<Graph> LinearModel() {
  Graph graph;
  const ValueId x = graph.AddInput("x", Floats({Dim::Symbol("N"), kFeatures}));
  const ValueId w = graph.AddVariable("w", Floats({kFeatures, kClasses}),
                                      RandomTensor({kFeatures, kClasses}, 1), true);
  GraphBuilder builder(graph);
  const ValueId scores = builder.Op("MatMul", {x, w});
  builder.Name(scores, "scores");
  WEFT_RETURN_IF_ERROR(builder.status());
  graph.AddOutput(scores);
  return graph;
}

// Between steps, each time after kStepsBetween of them.
class RotationHook final : public LoopHook {
 public:
  explicit RotationHook(std::function<absl::Status()> rotate) : rotate_(std::move(rotate)) {}

  int64_t NextCall(int64_t step) const override {
    return (step / kStepsBetween + 1) * kStepsBetween;
  }
  absl::StatusOr<std::string> Call(Coordinator&, int64_t) override {
    WEFT_RETURN_IF_ERROR(rotate_());
    ++calls_;
    return std::string();
  }
  int calls() const { return calls_; }

 private:
  const std::function<absl::Status()> rotate_;
  int calls_ = 0;
};

// Two worker processes with keys, each in a folder of its own, and their coordinator's.
class RotationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
    for (const char* const name : {"data", "live"}) {
      std::filesystem::create_directories(Path(name));
    }
    WriteData("x", RandomTensor({kSamples, kFeatures}, 2));
    WriteData("labels", RandomTensor({kSamples}, 3, 0, kClasses, DType::kInt64));
    data_.batch = 16;
    ASSERT_TRUE(MakeKeys().ok());
    for (const auto& [live, from] : folders_) {
      for (const char* const file : {kAuthorityFile, kTokenFile, kIdentityFile}) {
        ASSERT_TRUE(Write(live, file, Read(from, file)).ok());
      }
    }
    token_ = ReadTokenFile(LivePath("coordinator") + "/" + kTokenFile).value();
    ring_ = KeyRing::Open(LivePath("coordinator")).value();
    for (int i = 0; i < kWorkers; ++i) {
      addresses_.push_back(StartWorker({"--keys", LivePath(absl::StrCat("w", i)), "--data-root",
                                        Path("data"), "--log-level", "info"},
                                       LogPath(i), processes_[i]));
      ASSERT_NE(addresses_.back(), "");
    }
  }
  ~RotationTest() override {
    for (std::unique_ptr<Process>& process : processes_) process.reset();
    ring_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  std::string Path(const std::string& name) const { return absl::StrCat(root_, "/", name); }
  std::string LivePath(const std::string& name) const { return Path("live/" + name); }
  std::string IssuerPath() const { return Path(absl::StrCat("issuer-", issuer_)); }
  std::string LogPath(int worker) const { return Path(absl::StrCat("log-", worker)); }
  void WriteData(const std::string& input, const Tensor& tensor) {
    const std::string path = Path(absl::StrCat("data/", input, ".npy"));
    WriteTestFile(path, ToNpy(tensor).value());
    data_.files.push_back({input, path, 0});
  }

  // What `graph_runner cluster keys` does: new keys by the present authority.
  absl::Status MakeKeys() const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<HostNames> hosts, ParseHosts("127.0.0.1"));
    return MakeClusterKeys({IssuerPath(), hosts, 30, absl::Now()}).status();
  }
  std::string Read(const std::string& made, const std::string& file) const {
    const auto folder = OpenPrivateFolder(absl::StrCat(IssuerPath(), "/", made));
    const auto text = folder.ok() ? (*folder)->Read(file, kMaxFileBytes) : folder.status();
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }
  absl::Status Write(const std::string& live, const std::string& file, const std::string& text) {
    WEFT_ASSIGN_OR_RETURN(const auto folder, OpenPrivateFolder(LivePath(live)));
    return folder->Write(file, text);
  }

  // The same file of all folders is replaced; every process takes that up by itself.
  absl::Status Replace(const std::string& file,
                       const std::function<std::string(const std::string& from)>& text) {
    for (const auto& [live, from] : folders_) {
      WEFT_RETURN_IF_ERROR(Write(live, file, text(from)));
    }
    ++changes_;
    WEFT_RETURN_IF_ERROR(ring_->Reload());
    for (int i = 0; i < kWorkers; ++i) {
      const absl::Time end = absl::Now() + kPatience;
      while (CountOf(TextOf(LogPath(i)), "new keys from") < changes_) {
        if (absl::Now() > end) {
          return absl::DeadlineExceededError(absl::StrCat("worker ", i, " has not taken change ",
                                                          changes_, ": ", TextOf(LogPath(i))));
        }
        absl::SleepFor(absl::Milliseconds(10));
      }
    }
    return absl::OkStatus();
  }
  // New connections are made with the newest keys: at once, or within `patience`.
  absl::Status Connect(absl::Duration patience) const {
    for (const std::string& address : addresses_) {
      const absl::Time end = absl::Now() + patience;
      absl::Status status;
      do {
        status = ProbeTls(address, ring_->Current().get(), absl::Seconds(10));
        if (!status.ok()) absl::SleepFor(absl::Milliseconds(50));
      } while (!status.ok() && absl::Now() < end);
      WEFT_RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }
  absl::Status Renew() {
    WEFT_RETURN_IF_ERROR(MakeKeys());
    WEFT_RETURN_IF_ERROR(
        Replace(kIdentityFile, [&](const std::string& from) { return Read(from, kIdentityFile); }));
    return Connect(absl::ZeroDuration());
  }
  // Both are trusted for a while; then the new one signs; then it alone is trusted.
  absl::Status ChangeAuthority() {
    const std::string earlier = Read("coordinator", kAuthorityFile);
    ++issuer_;
    WEFT_RETURN_IF_ERROR(MakeKeys());
    const std::string next = Read("coordinator", kAuthorityFile);
    WEFT_RETURN_IF_ERROR(
        Replace(kAuthorityFile, [&](const std::string&) { return earlier + next; }));
    WEFT_RETURN_IF_ERROR(Connect(kPatience));
    WEFT_RETURN_IF_ERROR(
        Replace(kIdentityFile, [&](const std::string& from) { return Read(from, kIdentityFile); }));
    WEFT_RETURN_IF_ERROR(Connect(kPatience));
    WEFT_RETURN_IF_ERROR(Replace(kAuthorityFile, [&](const std::string&) { return next; }));
    return Connect(kPatience);
  }

  // A strict job on both workers.
  absl::StatusOr<TrainResult> RunJob(int64_t steps, std::vector<LoopHook*> hooks) {
    told_.clear();
    RemoteClusterOptions options;
    options.addresses = addresses_;
    options.token = token_;
    options.keys = ring_;
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerCluster> cluster, ConnectToCluster(options));
    Coordinator coordinator(cluster->clients());
    WEFT_ASSIGN_OR_RETURN(const Graph model, LinearModel());
    JobSpec spec;
    spec.cluster = ClusterSpec::Local(kWorkers, 1);
    spec.plan.strict = true;
    spec.plan.micro_batches = kWorkers;
    spec.plan.mesh.data = kWorkers;
    TrainingSpec training;
    training.optimizer.kind = "adam";
    training.optimizer.learning_rate = 0.01;
    WEFT_ASSIGN_OR_RETURN(auto data, DataSet::Open(RealFileSystem(), data_));
    WEFT_ASSIGN_OR_RETURN(const PreparedJob job, PrepareTraining(model, training, spec, data));
    WEFT_RETURN_IF_ERROR(StartJob(coordinator, job, spec, kVersion, addresses_));
    TrainOptions train;
    train.steps = steps;
    train.hooks = std::move(hooks);
    return Train(coordinator, job, train,
                 [this](const TrainProgress& progress) { told_.push_back(progress.step); });
  }

  std::string root_ = (std::filesystem::temp_directory_path() / "weft-rotation-XXXXXX").string();
  // Folders of keys that processes have, and those that they were made as.
  const std::vector<std::pair<std::string, std::string>> folders_ = {
      {"w0", "127.0.0.1"}, {"w1", "127.0.0.1"}, {"coordinator", "coordinator"}};
  DataSpec data_;
  std::string token_;
  std::shared_ptr<KeyRing> ring_;
  std::unique_ptr<Process> processes_[kWorkers];
  std::vector<std::string> addresses_;
  int issuer_ = 0;
  int64_t changes_ = 0;
  std::vector<int64_t> told_;  // steps, in the order in which they were told
};

TEST_F(RotationTest, NoStepFailsWhileKeysChange) {
  const char* const text = std::getenv("WEFT_ROTATIONS");
  int rotations = 6;
  if (text != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(text, &rotations)) << text;
  }
  const int64_t steps = rotations * kStepsBetween + kStepsBetween / 2;
  const auto undisturbed = RunJob(steps, {});
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.status();
  int turn = 0;
  RotationHook hook([&] {
    return turn++ % kAuthorityEvery == kAuthorityEvery / 2 ? ChangeAuthority() : Renew();
  });
  const auto rotated = RunJob(steps, {&hook});
  ASSERT_TRUE(rotated.ok()) << rotated.status();
  EXPECT_EQ(hook.calls(), rotations);
  EXPECT_EQ(rotated->steps, steps);
  ASSERT_EQ(static_cast<int64_t>(told_.size()), steps);
  for (int64_t step = 0; step < steps; ++step) EXPECT_EQ(told_[static_cast<size_t>(step)], step);
  ASSERT_EQ(rotated->parameters.size(), 1u);
  EXPECT_EQ(ToNpy(rotated->parameters.at("w")).value(),
            ToNpy(undisturbed->parameters.at("w")).value());
  // Who connects now has the newest keys alone.
  const auto next = RunJob(kStepsBetween, {});
  EXPECT_TRUE(next.ok()) << next.status();
  for (int i = 0; i < kWorkers; ++i) {
    EXPECT_FALSE(processes_[i]->Poll().has_value());
    EXPECT_THAT(TextOf(LogPath(i)), Not(HasSubstr("PRIVATE")));
    EXPECT_THAT(TextOf(LogPath(i)), Not(HasSubstr(token_)));
  }
}

}  // namespace
}  // namespace weft::testing
