#include "placement/search/plan_evaluator.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "placement/search/testing/layers.h"

namespace weft {
namespace {

TEST(PlanEvaluatorTest, NoPlanTakesLessThanItsBound) {
  const Layers model(6, 64);
  SearchOptions options;
  options.global_batch = 24;
  for (const double link : {1.25e6, 1e10}) {
    const CostModel cost = CostModel::OfSpec(ClusterOf(2, 2, link)).value();
    const auto plans =
        PlanEvaluator::Create(model.graph(), cost, options, CpuNodeEvaluator()).value();
    for (const PlanChoice& choice : AllChoices(PlanSpace(*plans))) {
      const double bound = plans->CloseBound(choice).value();
      const EvaluatedChoice evaluated = plans->Evaluate(choice).value();
      if (!evaluated.refusal.empty()) continue;
      EXPECT_LE(bound, evaluated.step_seconds * (1 + 1e-9)) << ParallelText(choice);
      EXPECT_LE(plans->LowerBound(choice), evaluated.step_seconds * (1 + 1e-9))
          << ParallelText(choice);
    }
  }
}

TEST(PlanEvaluatorTest, WhatCannotFitDoesNot) {
  const Layers model(8, 256);
  SearchOptions options;
  options.global_batch = 24;
  const CostModel cost = CostModel::OfSpec(ClusterOf(1, 4, 1e10)).value();
  int skipped = 0;
  int fitting = 0;
  for (const int64_t limit : {700000, 1000000, 1500000, 2500000, 5000000}) {
    options.memory_limits.assign(4, limit);
    const auto plans =
        PlanEvaluator::Create(model.graph(), cost, options, CpuNodeEvaluator()).value();
    for (const PlanChoice& choice : AllChoices(PlanSpace(*plans))) {
      const EvaluatedChoice evaluated = plans->Evaluate(choice).value();
      const bool fits = evaluated.refusal.empty() && evaluated.fits;
      fitting += fits;
      if (!plans->CannotFit(choice)) continue;
      ++skipped;
      EXPECT_FALSE(fits) << ParallelText(choice) << " in " << limit;
    }
  }
  EXPECT_GT(skipped, 0);
  EXPECT_GT(fitting, 0);
}

}  // namespace
}  // namespace weft
