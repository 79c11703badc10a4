#include "placement/search/testing/choice_program.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"

namespace weft {
namespace {

// Tables over two or three of some questions with two or three answers each; some rows are missing.
ChoiceProblem RandomProblem(uint64_t seed, int questions, int tables) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int count) { return static_cast<int>(random() % count); };
  ChoiceProblem problem;
  for (int i = 0; i < questions; ++i) problem.answers.push_back(2 + pick(2));
  for (int t = 0; t < tables; ++t) {
    ChoiceTable table;
    const int first = pick(questions - 2);
    table.questions = {first, first + 1 + pick(2)};
    if (pick(2) == 0 && first > 0) table.questions.push_back(pick(first));
    std::vector<int> row(table.questions.size(), 0);
    for (bool more = true; more;) {
      const bool is_whole = row == std::vector<int>(row.size(), 0);  // so that some answer is left
      if (is_whole || pick(5) > 0) {
        table.answers.push_back(row);
        table.costs.push_back(1e-3 * pick(1000));
      }
      more = false;
      for (size_t i = 0; i < row.size() && !more; ++i) {
        more = ++row[i] < problem.answers[table.questions[i]];
        if (!more) row[i] = 0;
      }
    }
    problem.tables.push_back(std::move(table));
  }
  return problem;
}

double CostOf(const ChoiceProblem& problem, const std::vector<int>& answers) {
  double cost = 0;
  for (const ChoiceTable& table : problem.tables) {
    std::vector<int> wanted;
    for (const int question : table.questions) wanted.push_back(answers[question]);
    const auto row = std::find(table.answers.begin(), table.answers.end(), wanted);
    if (row == table.answers.end()) return std::numeric_limits<double>::infinity();
    cost += table.costs[row - table.answers.begin()];
  }
  return cost;
}

double MinOfAll(const ChoiceProblem& problem) {
  std::vector<int> answers(problem.answers.size(), 0);
  double min_cost = std::numeric_limits<double>::infinity();
  for (;;) {
    min_cost = std::min(min_cost, CostOf(problem, answers));
    size_t i = 0;
    while (i < answers.size() && ++answers[i] == problem.answers[i]) answers[i++] = 0;
    if (i == answers.size()) return min_cost;
  }
}

TEST(ChoiceProgramTest, FindsTheBestOfAllCombinations) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const ChoiceProblem problem = RandomProblem(seed, 8, 12);
    const double min_cost = MinOfAll(problem);
    const auto answer = SolveChoices(problem, {});
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_NEAR(CostOf(problem, answer->answers), min_cost, 1e-9) << "seed " << seed;
    EXPECT_NEAR(answer->cost, min_cost, 1e-9) << "seed " << seed;
    EXPECT_EQ(answer->min_cost, answer->cost) << "seed " << seed;
  }
}

TEST(ChoiceProgramTest, WhatIsAnsweredAheadChangesNothing) {
  bool any_whole = false;
  for (uint64_t seed = 100; seed < 130; ++seed) {
    const ChoiceProblem problem = RandomProblem(seed, 40, 60);
    const double cost = SolveChoices(problem, {})->cost;
    for (const int64_t rows : {300, 100, 0}) {
      ChoiceLimits limits;
      limits.max_rows = rows;
      const auto smaller = SolveChoices(problem, limits);
      if (!smaller.ok()) continue;  // no table may be so large
      EXPECT_LE(smaller->rows, rows);
      EXPECT_NEAR(smaller->cost, cost, 1e-9) << "seed " << seed;
      any_whole |= rows == 0;
    }
  }
  EXPECT_TRUE(any_whole);
}

TEST(ChoiceProgramTest, AChainIsAnsweredAheadCompletely) {
  ChoiceProblem problem;
  for (int i = 0; i < 2000; ++i) problem.answers.push_back(2);
  for (int i = 1; i < 2000; ++i) {
    // It costs one to differ from the one before, and the first and the last must.
    problem.tables.push_back({{i - 1, i}, {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, {0, 1, 1, 0}});
  }
  problem.tables.push_back({{0, 1999}, {{0, 1}}, {0}});
  ChoiceLimits limits;
  limits.max_rows = 0;
  EXPECT_EQ(SolveChoices(problem, limits)->cost, 1);
}

TEST(ChoiceProgramTest, SameProblemSameAnswer) {
  const ChoiceProblem problem = RandomProblem(7, 60, 100);
  EXPECT_EQ(SolveChoices(problem, {})->answers, SolveChoices(problem, {})->answers);
}

// Each pair of many questions is to be answered differently, and there are two answers: the linear
// program says a half of each.
ChoiceProblem Frustrated(int questions) {
  ChoiceProblem problem;
  problem.answers.assign(questions, 2);
  std::mt19937_64 random(1);
  for (int i = 0; i < questions; ++i) {
    for (int j = 0; j < i; ++j) {
      const double cost = 1 + static_cast<double>(random() % 1000) / 1000;
      problem.tables.push_back({{j, i}, {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, {cost, 0, 0, cost}});
    }
  }
  return problem;
}

TEST(ChoiceProgramTest, SaysWhatIsProvenWhenItStopsEarly) {
  const ChoiceProblem problem = Frustrated(16);
  ChoiceLimits limits;
  limits.max_nodes = 2;
  const auto stopped = SolveChoices(problem, limits);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  const double min_cost = MinOfAll(problem);
  EXPECT_LE(stopped->min_cost, min_cost + 1e-9);
  EXPECT_GE(stopped->cost, min_cost - 1e-9);
  EXPECT_LT(stopped->min_cost, stopped->cost);
}

TEST(ChoiceProgramTest, RefusesWhatIsTooLarge) {
  ChoiceLimits limits;
  limits.max_rows = 10;
  limits.max_joined_rows = 64;
  const absl::Status status = SolveChoices(Frustrated(12), limits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("more than 10"), std::string::npos) << status;
}

TEST(ChoiceProgramTest, RefusesWhatIsImpossible) {
  ChoiceProblem problem;
  problem.answers = {2, 2};
  problem.tables = {{{0, 1}, {{0, 1}}, {1}}, {{0, 1}, {{1, 0}}, {1}}};
  for (const int64_t rows : {100, 0}) {  // by the integer program, and ahead of it
    ChoiceLimits limits;
    limits.max_rows = rows;
    EXPECT_EQ(SolveChoices(problem, limits).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace weft
