#include "tools/sweep/trial_flags.h"

#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/console/exit_code.h"
#include "tools/flags/train_flags.h"
#include "tools/sweep/sweep_flags.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// A command line of train, and its sweep.
class TrialFlagsTest : public ::testing::Test {
 protected:
  TrialFlagsTest() {
    flags_.Add(app_);
    sweep_.Add(app_);
    for (CLI::Option* const option : app_.get_options()) {
      if (!option->get_positional()) option->allow_extra_args(false);
    }
  }

  absl::StatusOr<SweepTrials> Parse(std::vector<std::string> more) {
    more.insert(more.begin(), {"m.onnx", "--data", "x=x.npy", "--labels", "y.npy"});
    app_.parse(std::vector<std::string>(more.rbegin(), more.rend()));
    const absl::Status checked = sweep_.Check(app_);
    if (!checked.ok()) return checked;
    return MakeSweepTrials(app_, sweep_.sweeps());
  }
  SweepTrials Trials(std::vector<std::string> more) {
    auto trials = Parse(std::move(more));
    EXPECT_TRUE(trials.ok()) << trials.status();
    return trials.ok() ? *std::move(trials) : SweepTrials();
  }
  // Of one of its trials.
  static TrialFlags Flags(const SweepTrials& sweep, size_t trial) {
    auto flags = sweep.Flags(trial);
    EXPECT_TRUE(flags.ok()) << flags.status();
    return *std::move(flags);
  }
  std::string Refusal(std::vector<std::string> more) {
    const absl::Status status = Parse(std::move(more)).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage) << status;
    return std::string(status.message());
  }

  CLI::App app_;
  TrainFlags flags_;
  SweepFlags sweep_;
};

TEST_F(TrialFlagsTest, EachTrialHasItsValuesAndTheOtherFlags) {
  const SweepTrials sweep =
      Trials({"--epochs", "3", "--optimizer", "adam", "--weight-decay", "0.5", "--weight-decay",
              "head/*=0.25", "--sweep", "lr=0.5,0.25", "--sweep", "batch=32,64", "--local", "2"});
  ASSERT_EQ(sweep.trials.size(), 4u);
  EXPECT_EQ(sweep.trials[1].text, "lr 0.5, batch 64");
  EXPECT_EQ(sweep.trials[2].text, "lr 0.25, batch 32");
  EXPECT_EQ(sweep.smallest_batch, 0);
  for (size_t i = 0; i < 4; ++i) {
    const TrialFlags parsed = Flags(sweep, i);
    const TrainFlags& flags = *parsed.flags;
    const auto training = flags.Training();
    ASSERT_TRUE(training.ok()) << training.status();
    EXPECT_EQ(training->optimizer.kind, "adam");
    EXPECT_EQ(training->optimizer.learning_rate, i < 2 ? 0.5 : 0.25);
    EXPECT_EQ(training->optimizer.weight_decay, 0.5);
    EXPECT_EQ(training->groups.weight_decays.at("head/*"), 0.25);
    EXPECT_EQ(flags.job().batch(), i % 2 == 0 ? 32 : 64);
    EXPECT_EQ(flags.job().model(), "m.onnx");
    EXPECT_TRUE(flags.job().starts_processes());
  }
}

// Steps of batches that differ are not the same data.
TEST_F(TrialFlagsTest, NoTrialChoosesItsBatch) {
  EXPECT_THAT(Refusal({"--steps", "9", "--batch", "auto:64", "--sweep", "lr=0.5,0.25"}),
              HasSubstr("goes without --batch auto"));
}

TEST_F(TrialFlagsTest, NoTrialSweepsTheChosenBatch) {
  EXPECT_THAT(Refusal({"--steps", "9", "--sweep", "batch=32,auto"}),
              HasSubstr("goes without --batch auto"));
}

TEST_F(TrialFlagsTest, SwitchesAndNamesAreSwept) {
  const SweepTrials sweep = Trials({"--epochs", "1", "--sweep", "optimizer=adam,rmsprop", "--sweep",
                                    "no-decay-vectors=true,false"});
  ASSERT_EQ(sweep.trials.size(), 4u);
  EXPECT_EQ(Flags(sweep, 3).flags->Training()->optimizer.kind, "rmsprop");
  EXPECT_TRUE(Flags(sweep, 3).flags->Training()->groups.decay_vectors);
  EXPECT_FALSE(Flags(sweep, 2).flags->Training()->groups.decay_vectors);
}

// The rank is swept; the other keys of --lora stay.
TEST_F(TrialFlagsTest, KeysOfAFlagAreSwept) {
  const SweepTrials sweep =
      Trials({"--epochs", "1", "--lora", "alpha=16,match=*fc*", "--sweep", "lora.rank=4,8"});
  ASSERT_EQ(sweep.trials.size(), 2u);
  EXPECT_EQ(Flags(sweep, 1).app->get_option("--lora")->results(),
            (std::vector<std::string>{"rank=8", "alpha=16", "match=*fc*"}));
}

TEST_F(TrialFlagsTest, RatesOfGroupsStayBesideASweptRate) {
  const SweepTrials sweep = Trials({"--epochs", "1", "--lr", "head/*=0.25", "--sweep", "lr=0.5,1"});
  ASSERT_EQ(sweep.trials.size(), 2u);
  const auto training = Flags(sweep, 1).flags->Training();
  EXPECT_EQ(training->optimizer.learning_rate, 1);
  EXPECT_EQ(training->groups.learning_rates.at("head/*"), 0.25);
}

// 100 * 32 samples are 50 steps of 64, and 66.7 of 48.
TEST_F(TrialFlagsTest, StepsAreThoseOfTheSmallestBatch) {
  const SweepTrials sweep = Trials({"--steps", "100", "--sweep", "batch=64,32,48"});
  EXPECT_EQ(sweep.smallest_batch, 32);
  std::vector<std::string> steps;
  for (size_t i = 0; i < sweep.trials.size(); ++i) {
    steps.push_back(Flags(sweep, i).app->get_option("--steps")->results().front());
  }
  EXPECT_THAT(steps, ::testing::ElementsAre("50", "100", "67"));
}

TEST_F(TrialFlagsTest, EachTrialHasItsCurves) {
  const SweepTrials sweep = Trials({"--epochs", "1", "--metrics", "a.b/curves.csv", "--tensorboard",
                                    "board", "--sweep", "lr=1,2"});
  EXPECT_EQ(Flags(sweep, 1).flags->results().metrics, "a.b/curves.trial-2.csv");
  EXPECT_EQ(Flags(sweep, 1).flags->results().tensorboard, "board/trial-2");
  EXPECT_EQ(TrialFile("a.b/curves", 7), "a.b/curves.trial-7");
}

TEST_F(TrialFlagsTest, FlagsThatCannotBeSwept) {
  EXPECT_THAT(Refusal({"--epochs", "1", "--sweep", "learning-rate=1,2"}),
              HasSubstr("train has no flag --learning-rate"));
  EXPECT_THAT(Refusal({"--epochs", "1", "--sweep", "out=a,b"}),
              HasSubstr("--sweep out: --out says where a run takes place, when it ends or what is "
                        "written"));
}

TEST_F(TrialFlagsTest, PlacesAndDurationsAreNotSwept) {
  for (const char* const name : {"cluster", "resume", "steps", "epochs", "data", "local", "metrics",
                                 "eval-every", "checkpoint"}) {
    CLI::App app;
    TrainFlags flags;
    flags.Add(app);
    EXPECT_FALSE(LoopFlags::Decides(*app.get_option(std::string("--") + name))) << name;
  }
}

// Each share makes the flags of its own trial.
TEST_F(TrialFlagsTest, SeveralThreadsMayMakeFlags) {
  const SweepTrials sweep = Trials({"--epochs", "1", "--sweep", "batch=1..8:8"});
  ASSERT_EQ(sweep.trials.size(), 8u);
  std::vector<int64_t> batches(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] { batches[i] = Flags(sweep, i).flags->job().batch(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(batches, ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST_F(TrialFlagsTest, AFlagThatIsGivenBesides) {
  EXPECT_EQ(Refusal({"--epochs", "1", "--lr", "0.5", "--sweep", "lr=1,2"}),
            "--sweep lr and --lr 0.5 are both given; leave one out");
}

TEST_F(TrialFlagsTest, ABadValueNamesItsTrial) {
  EXPECT_THAT(Refusal({"--epochs", "1", "--sweep", "batch=32,many"}),
              HasSubstr("--sweep: trial with batch many: "));
}

TEST_F(TrialFlagsTest, AValueThatTheTrainingRefusesNamesItsTrial) {
  EXPECT_THAT(Refusal({"--epochs", "1", "--sweep", "lr=0.5,-1"}),
              HasSubstr("--sweep: trial with lr -1: --lr -1: expected a number above 0"));
}

TEST_F(TrialFlagsTest, AKeyNeedsAFlagWithKeys) {
  EXPECT_THAT(Refusal({"--epochs", "1", "--sweep", "batch.x=1,2"}), HasSubstr("without keys"));
}

TEST_F(TrialFlagsTest, ASweepGoesWithoutCheckpoints) {
  EXPECT_THAT(Refusal({"--epochs", "1", "--sweep", "lr=1,2", "--checkpoint", "saved"}),
              HasSubstr("--sweep goes without --checkpoint: "));
}

TEST_F(TrialFlagsTest, ABatchIsANumber) {
  EXPECT_THAT(Refusal({"--epochs", "1", "--sweep", "lr=1,2", "--batch", "auto"}),
              HasSubstr("--sweep goes without --batch auto: "));
}

TEST_F(TrialFlagsTest, ASweptBatchIsANumberToo) {
  EXPECT_THAT(Refusal({"--steps", "9", "--sweep", "batch=32,auto:64"}),
              HasSubstr("--sweep goes without --batch auto: "));
}

TEST_F(TrialFlagsTest, LossesInTurnAreNotCompared) {
  EXPECT_THAT(
      Refusal({"--steps", "9", "--sweep", "seed=1,2", "--alternate", "d: loss=output:a, train=d.*",
               "--alternate", "g: loss=output:b, train=g.*"}),
      HasSubstr("--sweep goes without --alternate: "));
}

TEST_F(TrialFlagsTest, AModelIsThatOfTheBest) {
  EXPECT_EQ(Refusal({"--epochs", "1", "--sweep", "lr=1,2", "-o", "out.onnx"}),
            "which trial's result shall -o have? give --select best with it");
}

TEST_F(TrialFlagsTest, ASelectionNeedsASweep) {
  EXPECT_EQ(Refusal({"--epochs", "1", "--select", "best"}),
            "--select needs --sweep, as --sweep lr=0.1,0.03");
}

}  // namespace
}  // namespace weft
