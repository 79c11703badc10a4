// The plan that is found against plans made by hand: five models, four clusters, one simulator.
#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/command_run.h"
#include "tests/corpora.h"

namespace weft::testing {
namespace {

struct Cluster {
  const char* name;
  int workers;
  const char* spec;
};

// Equal workers of one machine; of two with a slow link; unequal ones; and GPUs.
constexpr Cluster kClusters[] = {
    {"one_host", 4, R"(
hosts:
  - name: alpha
    workers:
      - {address: "10.0.0.1:4000", threads: 2, memory: 4GiB}
      - {address: "10.0.0.1:4001", threads: 2, memory: 4GiB}
      - {address: "10.0.0.1:4002", threads: 2, memory: 4GiB}
      - {address: "10.0.0.1:4003", threads: 2, memory: 4GiB}
)"},
    {"slow_link", 4, R"(
hosts:
  - name: alpha
    workers:
      - {address: "10.0.0.1:4000", threads: 4, memory: 4GiB}
      - {address: "10.0.0.1:4001", threads: 4, memory: 4GiB}
  - name: beta
    workers:
      - {address: "10.0.0.2:4000", threads: 4, memory: 4GiB}
      - {address: "10.0.0.2:4001", threads: 4, memory: 4GiB}
links:
  - {from: alpha, to: beta, bandwidth: 1Gbit/s, latency: 100us}
)"},
    {"unequal", 3, R"(
hosts:
  - name: alpha
    workers:
      - {address: "10.0.0.1:4000", threads: 8, memory: 16GiB}
      - {address: "10.0.0.1:4001", threads: 8, memory: 16GiB}
  - name: beta
    workers:
      - {address: "10.0.0.2:4000", threads: 2, memory: 8GiB}
links:
  - {from: alpha, to: beta, bandwidth: 10Gbit/s, latency: 50us}
)"},
    {"gpus", 4, R"(
hosts:
  - name: alpha
    workers:
      - {address: "10.0.0.1:4000", device: "cuda:0", model: A100-80GB}
      - {address: "10.0.0.1:4001", device: "cuda:1", model: A100-80GB}
  - name: beta
    workers:
      - {address: "10.0.0.2:4000", device: "cuda:0", model: A100-80GB}
      - {address: "10.0.0.2:4001", device: "cuda:1", model: A100-80GB}
links:
  - {within: "*", kind: nvlink3}
  - {from: alpha, to: beta, kind: infiniband-hdr}
)"},
};

struct Model {
  const char* name;
  int64_t batch;
  // Whose running statistics depend on how the batch is cut: so the cut is the job's, not the
  // plan's.
  bool cut_is_given = false;
};

constexpr Model kSmallModels[] = {{"mlp_mnist", 64}, {"lenet_mnist", 64}, {"lstm_mnist", 64}};
constexpr Model kLargerModels[] = {{"gpt_char", 16}, {"resnet18_train", 16, true}};

constexpr int kGivenCut = 4;

class PlanQualityTest : public ::testing::TestWithParam<std::tuple<Model, Cluster>> {
 protected:
  void SetUp() override {
    corpora_ = CorporaFolder();
    if (!corpora_.has_value()) GTEST_SKIP() << "WEFT_CORPORA is not set";
    spec_ = TestPath("cluster.yaml");
    WriteTestFile(spec_, cluster().spec);
  }
  const Model& model() const { return std::get<0>(GetParam()); }
  const Cluster& cluster() const { return std::get<1>(GetParam()); }

  // The plan that these flags ask for, as JSON; what was said where there is none.
  absl::StatusOr<nlohmann::json> Plan(const std::vector<std::string>& flags) const {
    const std::string path = absl::StrCat(*corpora_, "/training-models/", model().name, ".onnx");
    std::vector<std::string> arguments = {
        "plan", path,       "--optimizer", "adam",    "--cluster",
        spec_,  "--output", "json",        "--batch", absl::StrCat(model().batch)};
    if (model().cut_is_given) {  // the statistics of its micro-batches are wanted
      arguments.insert(arguments.end(), {"--batch-norm", "micro"});
    }
    if (std::string(model().name) == "gpt_char") {
      const std::string text = *corpora_ + "/text-iris/tinyshakespeare.txt";
      for (const std::string& more : {std::string("--data"), "idx=" + text, std::string("--labels"),
                                      text, std::string("--vocabulary"), std::string("characters"),
                                      std::string("--sequence-length"), std::string("64")}) {
        arguments.push_back(more);
      }
    }
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const CommandResult said = RunCommand(arguments);
    if (said.exit_code != 0) return absl::NotFoundError(said.err);
    return nlohmann::json::parse(said.out);
  }

  // Seconds of a step.
  absl::StatusOr<double> Predict(const std::vector<std::string>& flags) const {
    const absl::StatusOr<nlohmann::json> plan = Plan(flags);
    if (!plan.ok()) return plan.status();
    return (*plan)["predicted_step_seconds"].get<double>();
  }

  struct Best {
    double seconds = 0;  // 0: none
    std::string flag;
    void Add(double other, const std::string& text) {
      if (seconds == 0 || other < seconds) *this = {other, text};
    }
  };

  // Of the meshes on `workers`, with micro-batches in powers of two and two schedules.
  void TryMeshes(int workers, Best& pure, Best& any) const {
    for (int data = 1; data <= workers; ++data) {
      for (int tensor = 1; data * tensor <= workers; ++tensor) {
        if (workers % (data * tensor) != 0) continue;
        const int stages = workers / (data * tensor);
        for (int64_t micro = data; micro <= model().batch; micro *= 2) {
          if (model().cut_is_given && micro != kGivenCut) continue;
          for (const char* schedule : {"gpipe", "1f1b"}) {
            const std::string flag = absl::StrCat("dp=", data, ",tp=", tensor, ",pp=", stages,
                                                  ",micro=", micro, ",schedule=", schedule);
            const absl::StatusOr<double> seconds = Predict({"--parallel", flag});
            if (!seconds.ok()) continue;
            any.Add(*seconds, flag);
            if (std::max({data, tensor, stages}) == workers) pure.Add(*seconds, flag);
            if (stages == 1) break;  // no schedule
          }
        }
      }
    }
  }

  std::optional<std::string> corpora_;
  std::string spec_;
};

// The search once simulated one step alone, and took a pipeline for a sixth slower than it is.
TEST_P(PlanQualityTest, ExplainsTheStepThatItPredicts) {
  const absl::StatusOr<nlohmann::json> plan = Plan({"--explain"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_DOUBLE_EQ((*plan)["explanation"]["chosen"]["step_seconds"].get<double>(),
                   (*plan)["predicted_step_seconds"].get<double>());
}

TEST_P(PlanQualityTest, IsNoWorseThanPlansMadeByHand) {
  const absl::StatusOr<double> found = Predict({});
  ASSERT_TRUE(found.ok()) << found.status();
  Best pure;
  Best any;
  TryMeshes(cluster().workers, pure, any);
  ASSERT_GT(pure.seconds, 0);
  EXPECT_LE(*found, pure.seconds * (1 + 1e-9)) << pure.flag;
  EXPECT_LE(*found, 1.03 * any.seconds) << any.flag;
}

// Trying every cut of every mesh takes too long for large ones.
class SmallModelsTest : public PlanQualityTest {};

TEST_P(SmallModelsTest, IsAsGoodAsTheBestOfAllPlans) {
  const absl::StatusOr<double> found = Predict({});
  const absl::StatusOr<double> best = Predict({"--search", "exhaustive"});
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_LE(*found, 1.03 * *best);
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Model, Cluster>>& info) {
  return absl::StrCat(std::get<0>(info.param).name, "_", std::get<1>(info.param).name);
}

INSTANTIATE_TEST_SUITE_P(Small, PlanQualityTest,
                         ::testing::Combine(::testing::ValuesIn(kSmallModels),
                                            ::testing::ValuesIn(kClusters)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Larger, PlanQualityTest,
                         ::testing::Combine(::testing::ValuesIn(kLargerModels),
                                            ::testing::ValuesIn(kClusters)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Small, SmallModelsTest,
                         ::testing::Combine(::testing::ValuesIn(kSmallModels),
                                            ::testing::ValuesIn(kClusters)),
                         NameOf);

}  // namespace
}  // namespace weft::testing
