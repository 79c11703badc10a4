// Updates in turn against the same steps written out in double: a small GAN whose critic has two
// steps of Adam for each step of its generator.
#include "training/job/alternation.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/testing/device_cluster.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/data_file.h"
#include "training/job/job.h"
#include "training/job/trainer.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kVersion[] = "test";
constexpr double kCriticRate = 0.05;
constexpr double kGeneratorRate = 0.2;
constexpr int64_t kReal = 6;   // samples of the critic, in batches of 2
constexpr int64_t kNoise = 5;  // of the generator, in batches of 3: the last one of an epoch has 2

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// The model's numbers: G(z) = a z + c, D(x) = u x + v; `w` is in the score of both losses.
std::map<std::string, double> Start() {
  return {{"gen.a", 0.5}, {"gen.c", -0.25}, {"disc.u", 0.75}, {"disc.v", 0.125}, {"w", 0.0625}};
}

// loss_d = mean softplus(-D(x)) + mean softplus(D(G(z))), loss_g = mean softplus(-D(G(zg))).
Graph Gan() {
  Graph graph;
  GraphBuilder b(graph);
  const ValueType rows = {ValueKind::kTensor, DType::kFloat32,
                          SymbolicShape({Dim::Symbol("N"), Dim(1)})};
  std::map<std::string, ValueId> value;
  for (const char* const input : {"x", "z", "zg"}) value[input] = graph.AddInput(input, rows);
  for (const auto& [name, number] : Start()) {
    value[name] = graph.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, Shape{1}},
                                    Tensor::Of<float>({1}, {static_cast<float>(number)}), true);
  }
  const auto generated = [&](const char* noise) {
    return b.Op("Add", {b.Op("Mul", {value[noise], value["gen.a"]}), value["gen.c"]});
  };
  const auto score = [&](ValueId x) {
    const ValueId own = b.Op("Add", {b.Op("Mul", {x, value["disc.u"]}), value["disc.v"]});
    return b.Op("Add", {own, value["w"]});
  };
  const auto loss = [&](ValueId scores, bool real) {
    const ValueId signs = real ? b.Op("Neg", {scores}) : scores;
    return b.Op("ReduceMean", {b.Op("Softplus", {signs})}, {{"keepdims", int64_t{0}}});
  };
  const ValueId loss_d =
      b.Op("Add", {loss(score(value["x"]), true), loss(score(generated("z")), false)});
  const ValueId loss_g = loss(score(generated("zg")), true);
  b.Name(loss_d, "loss_d");
  b.Name(loss_g, "loss_g");
  graph.AddOutput(loss_d);
  graph.AddOutput(loss_g);
  EXPECT_TRUE(b.status().ok()) << b.status();
  return graph;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Softplus(double x) { return std::log1p(std::exp(x)); }

// The same in double; its `w` does not change.
class ByHand {
 public:
  ByHand(std::vector<double> x, std::vector<double> z, std::vector<double> zg)
      : x_(std::move(x)), z_(std::move(z)), zg_(std::move(zg)) {}

  // One step of Adam on samples [first, last) of x and z; the loss before it.
  double Critic(int64_t first, int64_t last) {
    const double count = static_cast<double>(last - first);
    double loss = 0, du = 0, dv = 0;
    for (int64_t n = first; n < last; ++n) {
      const double fake = Fake(z_[n]);
      loss += (Softplus(-Score(x_[n])) + Softplus(Score(fake))) / count;
      const double real_delta = -Sigmoid(-Score(x_[n])), fake_delta = Sigmoid(Score(fake));
      du += (real_delta * x_[n] + fake_delta * fake) / count;
      dv += (real_delta + fake_delta) / count;
    }
    ++critic_steps_;
    Adam("disc.u", du);
    Adam("disc.v", dv);
    return loss;
  }

  // One step of gradient descent with momentum on samples [first, last) of zg.
  double Generator(int64_t first, int64_t last) {
    const double count = static_cast<double>(last - first);
    double loss = 0, da = 0, dc = 0;
    for (int64_t n = first; n < last; ++n) {
      const double score = Score(Fake(zg_[n]));
      loss += Softplus(-score) / count;
      const double delta = -Sigmoid(-score) * p_["disc.u"];
      da += delta * zg_[n] / count;
      dc += delta / count;
    }
    for (const auto& [name, gradient] : {std::pair("gen.a", da), std::pair("gen.c", dc)}) {
      velocity_[name] = 0.9 * velocity_[name] + gradient;
      p_[name] -= kGeneratorRate * velocity_[name];
    }
    return loss;
  }

  const std::map<std::string, double>& parameters() const { return p_; }

 private:
  double Fake(double z) { return p_["gen.a"] * z + p_["gen.c"]; }
  double Score(double x) { return p_["disc.u"] * x + p_["disc.v"] + p_["w"]; }
  void Adam(const std::string& name, double gradient) {
    double& m = m_[name];
    double& v = v_[name];
    m = 0.5 * m + 0.5 * gradient;
    v = 0.999 * v + 0.001 * gradient * gradient;
    const double m_hat = m / (1 - std::pow(0.5, critic_steps_));
    const double v_hat = v / (1 - std::pow(0.999, critic_steps_));
    p_[name] -= kCriticRate * m_hat / (std::sqrt(v_hat) + 1e-8);
  }

  const std::vector<double> x_, z_, zg_;
  std::map<std::string, double> p_ = Start(), m_, v_, velocity_;
  int critic_steps_ = 0;
};

// On each device of tensor/testing/test_device.h.
class AlternationTest : public ::testing::TestWithParam<int> {
 protected:
  AlternationTest() {
    Write("x", testing::RandomTensor({kReal, 1}, 1));
    Write("z", testing::RandomTensor({kReal, 1}, 2));
    Write("zg", testing::RandomTensor({kNoise, 1}, 3));
    data_.batch = 2;
  }
  void Write(const std::string& input, const Tensor& tensor) {
    const std::string path = absl::StrCat("/", input, ".npy");
    ASSERT_TRUE(files_.WriteFileAtomically(path, *ToNpy(tensor)).ok());
    data_.files.push_back({input, path, 0});
    samples_[input] = *ToDoubles(tensor);
  }

  static UpdateSpec Parsed(const std::string& text) {
    TrainingSpec base;
    base.optimizer.kind = "momentum";
    base.optimizer.learning_rate = kGeneratorRate;
    const auto update = ParseUpdate(text, base);
    EXPECT_TRUE(update.ok()) << update.status();
    return update.ok() ? *update : UpdateSpec();
  }
  static std::vector<UpdateSpec> Updates() {
    return {Parsed(absl::StrCat("critic: loss=output:loss_d, train=disc.*, steps=2, "
                                "optimizer=adam, beta1=0.5, lr=",
                                kCriticRate)),
            Parsed("generator: loss=output:loss_g, train=gen.a+gen.c, batch=3")};
  }

  absl::StatusOr<PreparedJob> Prepare(std::vector<UpdateSpec> updates, int64_t steps) {
    Graph model = Gan();
    auto frozen = AssignParameters(model, updates);
    if (!frozen.ok()) return frozen.status();
    frozen_ = *std::move(frozen);
    auto data = OpenUpdateData(files_, model, updates, data_);
    if (!data.ok()) return data.status();
    return PrepareAlternation(model, updates, *data, spec_, steps);
  }

  absl::StatusOr<TrainResult> TrainOn(int workers, int64_t steps, const Plan& plan = {}) {
    spec_.cluster = ClusterSpec::Local(workers, 1);
    spec_.plan = plan;
    auto job = Prepare(Updates(), steps);
    if (!job.ok()) return job.status();
    testing::DeviceCluster cluster(GetParam(), workers, NewDataSetFactory(files_), kVersion);
    Coordinator coordinator(cluster.clients());
    const absl::Status started = StartJob(coordinator, *job, spec_, kVersion, {});
    if (!started.ok()) return started;
    progress_.clear();
    return Train(coordinator, *job, {.steps = steps},
                 [this](const TrainProgress& progress) { progress_.push_back(progress); });
  }

  testing::FakeFileSystem files_;
  DataSpec data_;
  std::map<std::string, std::vector<double>> samples_;
  JobSpec spec_;
  std::vector<std::string> frozen_;
  std::vector<TrainProgress> progress_;
};

TEST(TurnOrderTest, EachMakesItsStepsInARow) {
  const TurnOrder order({2, 1, 3});
  EXPECT_EQ(order.cycle(), 6);
  std::vector<size_t> updates;
  std::vector<int64_t> steps;
  for (int64_t step = 0; step < 9; ++step) {
    updates.push_back(order.At(step).update);
    steps.push_back(order.At(step).step);
  }
  EXPECT_THAT(updates, ElementsAre(0, 0, 1, 2, 2, 2, 0, 0, 1));
  EXPECT_THAT(steps, ElementsAre(0, 1, 0, 0, 1, 2, 2, 3, 1));
  EXPECT_EQ(order.StepsOf(0, 9), 4);
  EXPECT_EQ(order.StepsOf(1, 9), 2);
  EXPECT_EQ(order.StepsOf(2, 9), 3);
  EXPECT_EQ(order.StepsOf(2, 5), 2);
}

INSTANTIATE_TEST_SUITE_P(Devices, AlternationTest, testing::JobDevices(), testing::JobDeviceName);

// 13 steps end in the middle of a turn, and go around the data of both.
TEST_P(AlternationTest, StepsEqualThoseByHandOnAnyWorkers) {
  for (const int workers : {1, 2}) {
    SCOPED_TRACE(absl::StrCat(workers, " workers"));
    Plan plan;
    plan.micro_batches = 2;
    const auto result = TrainOn(workers, 13, plan);
    ASSERT_TRUE(result.ok()) << result.status();
    ByHand expected(samples_["x"], samples_["z"], samples_["zg"]);
    ASSERT_EQ(progress_.size(), 13u);
    for (int64_t step = 0; step < 13; ++step) {
      const TrainProgress& done = progress_[static_cast<size_t>(step)];
      EXPECT_EQ(done.step, step);
      if (step % 3 < 2) {
        const int64_t first = (step / 3 * 2 + step % 3) % 3 * 2;
        EXPECT_EQ(done.update, "critic");
        EXPECT_NEAR(done.loss, expected.Critic(first, first + 2), 1e-6) << step;
        EXPECT_EQ(done.samples, 2);
        EXPECT_EQ(done.learning_rate, kCriticRate);
      } else {
        const bool is_short = step / 3 % 2 == 1;
        EXPECT_EQ(done.update, "generator");
        EXPECT_NEAR(done.loss, is_short ? expected.Generator(3, 5) : expected.Generator(0, 3), 1e-6)
            << step;
        EXPECT_EQ(done.samples, is_short ? 2 : 3);
        EXPECT_EQ(done.learning_rate, kGeneratorRate);
      }
    }
    EXPECT_THAT(frozen_, ElementsAre("w"));
    ASSERT_EQ(result->parameters.size(), 4u) << "w is of no update";
    for (const auto& [name, tensor] : result->parameters) {
      EXPECT_NEAR(ToDoubles(tensor)->front(), expected.parameters().at(name), 1e-6) << name;
    }
    EXPECT_EQ(result->last_losses.at("critic"), progress_[12].loss);
    EXPECT_EQ(result->last_losses.at("generator"), progress_[11].loss);
  }
}

TEST_P(AlternationTest, StrictBitsDoNotDependOnWorkers) {
  Plan plan;
  plan.micro_batches = 2;
  plan.strict = true;
  const auto one = TrainOn(1, 10, plan);
  const auto two = TrainOn(2, 10, plan);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(two.ok()) << two.status();
  for (const auto& [name, tensor] : one->parameters) {
    EXPECT_EQ(*ToDoubles(tensor), *ToDoubles(two->parameters.at(name))) << name;
  }
}

TEST_P(AlternationTest, RunsOnReplicasAlone) {
  spec_.cluster = ClusterSpec::Local(2, 1);
  spec_.plan.mesh.pipeline = 2;
  EXPECT_THAT(Message(Prepare(Updates(), 3).status()),
              HasSubstr("updates in turn run on replicas of the whole model, the plan is dp=1 x "
                        "tp=1 x pp=2; give --parallel dp=N"));
}

TEST_P(AlternationTest, ParametersAreOfOneUpdate) {
  std::vector<UpdateSpec> updates = Updates();
  updates[1].train = {"gen.a", "disc.v"};
  EXPECT_EQ(Message(Prepare(updates, 3).status()),
            "the updates 'critic' and 'generator' both train 'disc.v'; each parameter is trained "
            "by one of them");
  updates[1].train = {"gn.*"};
  EXPECT_THAT(Message(Prepare(updates, 3).status()),
              HasSubstr("update 'generator': train=gn.* is the name of no parameter that trains"));
  updates[1].name = "critic";
  updates[1].train = {"gen.*"};
  EXPECT_EQ(Message(Prepare(updates, 3).status()), "two updates are called 'critic'");
}

TEST_P(AlternationTest, ALossIsAValueOfTheModel) {
  std::vector<UpdateSpec> updates = Updates();
  updates[0].training.loss.kind = "output:loss_x";
  EXPECT_EQ(Message(Prepare(updates, 3).status()),
            "update 'critic': the model has no value 'loss_x'");
}

TEST_P(AlternationTest, RatesOfPatternsGoToTheUpdateThatHasThem) {
  Graph model = Gan();
  std::vector<UpdateSpec> updates = Updates();
  for (UpdateSpec& update : updates) {
    update.training.groups.learning_rates = {{"gen.*", 0.5}, {"*", 0.25}, {"other", 1}};
  }
  ASSERT_TRUE(AssignParameters(model, updates).ok());
  EXPECT_FALSE(updates[0].training.groups.learning_rates.contains("gen.*"));
  EXPECT_TRUE(updates[1].training.groups.learning_rates.contains("gen.*"));
  for (const UpdateSpec& update : updates) {
    EXPECT_TRUE(update.training.groups.learning_rates.contains("*"));
    EXPECT_TRUE(update.training.groups.learning_rates.contains("other")) << "is refused later";
  }
}

TEST(ParseUpdateTest, KeepsTheRestOfTheBase) {
  TrainingSpec base;
  base.optimizer.kind = "adam";
  base.optimizer.learning_rate = 0.01;
  base.optimizer.options["beta1"] = 0.5;
  base.clip_norm = 2;
  const auto same = ParseUpdate("d: loss=mse, train=d.*", base);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->training.optimizer.learning_rate, 0.01);
  EXPECT_EQ(same->training.optimizer.options.at("beta1"), 0.5);
  EXPECT_EQ(same->training.clip_norm, 2);
  EXPECT_EQ(same->steps, 1);
  const auto other = ParseUpdate(
      "d: loss=mse, train=a+b, optimizer=rmsprop, steps=5, clip-norm=1, seed=7, batch=64", base);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->training.optimizer.learning_rate, UsualLearningRate("rmsprop"));
  EXPECT_TRUE(other->training.optimizer.options.empty());
  EXPECT_EQ(other->training.clip_norm, 1);
  EXPECT_EQ(other->steps, 5);
  EXPECT_EQ(other->seed, 7u);
  EXPECT_EQ(other->batch, 64);
  EXPECT_THAT(other->train, ElementsAre("a", "b"));
}

// Adam's usual beta1 is 0.9, and --beta1 0.5 is that of the updates that do not say theirs.
TEST(ParseUpdateTest, AUsualNumberTakesThePlaceOfTheOneOfTheBase) {
  TrainingSpec base;
  base.optimizer.kind = "adam";
  base.optimizer.options["beta1"] = 0.5;
  const auto update = ParseUpdate("d: loss=mse, train=d.*, beta1=0.9", base);
  ASSERT_TRUE(update.ok()) << update.status();
  // What is not there has its usual value.
  EXPECT_EQ(update->training.optimizer.options.count("beta1"), 0u);
}

TEST(ParseUpdateTest, SaysWhatIsWrong) {
  const auto refusal = [](const std::string& text) {
    return Message(ParseUpdate(text, TrainingSpec()).status());
  };
  EXPECT_THAT(refusal("loss=output:d, train=x"), HasSubstr("expected NAME: key=value"));
  EXPECT_THAT(refusal("critic"), HasSubstr("expected NAME: key=value"));
  EXPECT_THAT(refusal("c: train=x"), HasSubstr("update 'c': what is its loss?"));
  EXPECT_THAT(refusal("c: loss=mse"), HasSubstr("update 'c': what does it train?"));
  EXPECT_THAT(refusal("c: loss=mse, train=x, step=2"),
              HasSubstr("there is no key 'step', did you mean 'steps'?"));
  EXPECT_THAT(refusal("c: loss=mse, train=x, steps=0"), HasSubstr("steps=0: expected a whole"));
  // Four of these are no cycle: their sum was 0.
  EXPECT_THAT(refusal("c: loss=mse, train=x, steps=4611686018427387904"),
              HasSubstr("expected a whole number from 1 to 1000000000"));
  EXPECT_THAT(refusal("c: loss=mse, train=x, train=y"), HasSubstr("train is given twice"));
  EXPECT_THAT(refusal("c: loss=mse, train=x, lr=fast"), HasSubstr("lr=fast: expected a number"));
  EXPECT_THAT(refusal("c: loss=mse, train=x, optimizer=adm"), HasSubstr("did you mean 'adam'?"));
  EXPECT_THAT(refusal("c: loss=mse, train=x, beta1=0.5"), HasSubstr("there is no key 'beta1'"));
  EXPECT_THAT(refusal("c: loss=bce, train=x"), HasSubstr("no loss 'bce'"));
}

}  // namespace
}  // namespace weft
