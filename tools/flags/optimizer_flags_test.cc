#include "tools/flags/optimizer_flags.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/defs/optimizer/optimizer.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

absl::StatusOr<TrainingSpec> Parsed(std::vector<std::string> arguments) {
  CLI::App app;
  OptimizerFlags flags;
  flags.AddLoss(app);
  flags.AddOptimizer(app);
  app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  return flags.Training();
}

std::string Refusal(std::vector<std::string> arguments) {
  const absl::Status status = Parsed(std::move(arguments)).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  return std::string(status.message());
}

TEST(OptimizerFlagsTest, EachOptimizerHasItsUsualRate) {
  EXPECT_EQ(Parsed({})->optimizer.learning_rate, 0.01);
  EXPECT_EQ(Parsed({"--optimizer", "adamw"})->optimizer.learning_rate, 0.001);
  EXPECT_EQ(Parsed({"--optimizer", "adadelta"})->optimizer.learning_rate, 1);
  EXPECT_EQ(Parsed({"--optimizer", "lion", "--lr", "0.5"})->optimizer.learning_rate, 0.5);
}

// Flags of an optimizer follow from its declaration.
WEFT_REGISTER_OPTIMIZER(
    {.name = "zz_test",
     .help = "of this test",
     .learning_rate = 0.25,
     .options = {{.name = "zz-number", .usual = 3, .help = "a number", .high = 5},
                 {.name = "zz-switch", .help = "a switch", .high = 2, .is_switch = true}},
     .op = "SgdUpdate"});

TEST(OptimizerFlagsTest, AnOptionThatAnOptimizerDeclaresIsAFlag) {
  const auto usual = Parsed({"--optimizer", "zz_test"});
  ASSERT_TRUE(usual.ok()) << usual.status();
  EXPECT_EQ(usual->optimizer.learning_rate, 0.25);
  EXPECT_THAT(usual->optimizer.options, ::testing::IsEmpty());
  const auto set = Parsed({"--optimizer", "zz_test", "--zz-number", "4", "--zz-switch"});
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_THAT(set->optimizer.options, ElementsAre(Pair("zz-number", 4), Pair("zz-switch", 1)));
  EXPECT_THAT(Refusal({"--optimizer", "zz_tset"}), HasSubstr("did you mean 'zz_test'?"));
  EXPECT_EQ(Refusal({"--optimizer", "zz_test", "--zz-number", "5"}),
            "zz number is 5, expected a number in [0, 5)");
  EXPECT_EQ(Refusal({"--zz-number", "4"}),
            "optimizer 'sgd' has no option 'zz-number'; it belongs to: zz_test");
}

TEST(OptimizerFlagsTest, TheHelpOfAnOptionSaysWhatEachKindDoes) {
  CLI::App app;
  OptimizerFlags flags;
  flags.AddOptimizer(app);
  EXPECT_THAT(app.get_option("--weight-decay")->get_description(), HasSubstr("sgd, zz_test"));
  EXPECT_EQ(app.get_option("--zz-number")->get_description(), "a number (default 3 for zz_test)");
  EXPECT_EQ(app.get_option("--zz-switch")->get_description(), "a switch (for zz_test)");
  EXPECT_THAT(app.get_option("--momentum")->get_description(),
              HasSubstr("(default 0.9 for lars, momentum, nesterov; 0 for rmsprop)"));
}

TEST(OptimizerFlagsTest, RatesAndDecaysByName) {
  const auto spec =
      Parsed({"--lr", "1e-3", "--lr", "head/*=1e-2", "--weight-decay", "0.1", "--weight-decay",
              "a=b=0.2", "--no-decay", "*.bias", "--no-decay-vectors"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->optimizer.learning_rate, 1e-3);
  EXPECT_THAT(spec->groups.learning_rates, ElementsAre(Pair("head/*", 1e-2)));
  EXPECT_EQ(spec->optimizer.weight_decay, 0.1);
  EXPECT_THAT(spec->groups.weight_decays, ElementsAre(Pair("*.bias", 0), Pair("a=b", 0.2)));
  EXPECT_FALSE(spec->groups.decay_vectors);
}

TEST(OptimizerFlagsTest, TheLastRateIsAShareOfTheFirst) {
  const auto spec = Parsed({"--lr", "0.5", "--schedule", "cosine", "--warmup", "3", "--lr-end",
                            "0.125", "--schedule-steps", "20"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->schedule.kind, "cosine");
  EXPECT_EQ(spec->schedule.warmup, 3);
  EXPECT_EQ(spec->schedule.total, 20);
  EXPECT_EQ(spec->schedule.end, 0.25);
}

TEST(OptimizerFlagsTest, AScheduleWithoutStepsTakesThoseOfTheRun) {
  const auto spec = Parsed({"--schedule", "linear"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->schedule.total, 0);
}

TEST(OptimizerFlagsTest, LossOptions) {
  const auto spec = Parsed({"--label-smoothing", "0.1", "--ignore-index=-100", "--class-weights",
                            "1,2,0.5", "--loss-output", "logits", "--class-axis", "1"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->loss.label_smoothing, 0.1);
  EXPECT_EQ(spec->loss.ignore_index, -100);
  EXPECT_THAT(spec->loss.class_weights, ElementsAre(1, 2, 0.5));
  EXPECT_EQ(spec->loss.output, "logits");
  EXPECT_EQ(spec->loss.class_axis, 1);
}

TEST(OptimizerFlagsTest, PrecisionAndItsLossScale) {
  EXPECT_EQ(Parsed({})->precision, Precision::kFloat32);
  EXPECT_EQ(Parsed({"--precision", "bf16"})->precision, Precision::kBfloat16);
  const auto spec =
      Parsed({"--precision", "fp16", "--loss-scale", "1024", "--loss-scale-window", "100"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->precision, Precision::kFloat16);
  EXPECT_EQ(spec->loss_scale.initial, 1024);
  EXPECT_EQ(spec->loss_scale.growth_interval, 100);
  EXPECT_THAT(Refusal({"--precision", "b16"}),
              HasSubstr("no precision 'b16', did you mean 'bf16'?"));
  EXPECT_EQ(Refusal({"--precision", "bf16", "--loss-scale", "2"}),
            "--loss-scale is of --precision fp16; bf16 needs none");
  EXPECT_THAT(Refusal({"--precision", "fp16", "--loss-scale", "0"}),
              HasSubstr("the loss scale is 0"));
}

TEST(OptimizerFlagsTest, WhatIsWrongIsNamed) {
  EXPECT_THAT(Refusal({"--optimizer", "adm"}),
              HasSubstr("no optimizer 'adm', did you mean 'adam'?"));
  EXPECT_THAT(Refusal({"--loss", "hinge"}), HasSubstr("no loss 'hinge'"));
  EXPECT_THAT(Refusal({"--schedule", "cosin"}), HasSubstr("no schedule 'cosin'"));
  EXPECT_EQ(Refusal({"--lr", "fast"}), "--lr fast: expected a number or PATTERN=NUMBER");
  EXPECT_EQ(Refusal({"--lr", "0"}), "--lr 0: expected a number above 0");
  EXPECT_EQ(Refusal({"--lr", "1", "--lr", "2"}),
            "--lr 2: there is a number for all parameters already, 1; for some of them give "
            "PATTERN=2");
  EXPECT_THAT(Refusal({"--clip-norm", "-1"}), HasSubstr("the longest gradient is -1"));
}

}  // namespace
}  // namespace weft
