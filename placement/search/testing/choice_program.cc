#include "placement/search/testing/choice_program.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "coin/CbcModel.hpp"
#include "coin/CoinPackedMatrix.hpp"
#include "coin/OsiClpSolverInterface.hpp"
#include "placement/search/testing/choice_merging.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The dearest row over the cheapest of its table costs so much to the solver, whose tolerances are
// absolute (1e-7).
constexpr double kLargestCost = 1e6;
// Answers that are at most so much dearer than the best count as the best: rounding.
constexpr double kProvenGap = 1e-9;

absl::Status NothingAllowed() {
  return absl::InvalidArgumentError("no combination of choices is allowed");
}

// The integer program of a problem's tables. Columns: first the answers of open questions, then the
// rows of tables. Constraints: one answer per question; the rows with an answer add up to it.
class Program {
 public:
  explicit Program(const ChoiceMerging& merging) : tables_(merging.tables()) {
    double largest = 0;
    for (const ChoiceTable* table : tables_) {
      const double min_cost = *std::min_element(table->costs.begin(), table->costs.end());
      min_.push_back(min_cost);
      base_ += min_cost;
      for (const double cost : table->costs) largest = std::max(largest, cost - min_cost);
    }
    scale_ = largest > 0 ? kLargestCost / largest : 1;
  }

  // Answers of open questions; ChoiceAnswer::answers is left empty where none was found.
  absl::StatusOr<ChoiceAnswer> Solve(const std::vector<int>& counts, const ChoiceMerging& merging,
                                     int max_nodes) {
    AddAnswers(counts, merging);
    for (size_t i = 0; i < tables_.size(); ++i) AddTable(i, counts);
    OsiClpSolverInterface solver;
    solver.messageHandler()->setLogLevel(0);
    Load(solver);
    CbcModel model(solver);
    model.setLogLevel(0);
    model.solver()->messageHandler()->setLogLevel(0);
    model.setMaximumNodes(max_nodes);
    model.branchAndBound();
    if (model.isProvenInfeasible()) return NothingAllowed();
    ChoiceAnswer answer;
    answer.min_cost = base_ + model.getBestPossibleObjValue() / scale_;
    const double* const solution = model.bestSolution();
    if (solution == nullptr) return answer;
    answer.answers.assign(counts.size(), 0);
    for (const auto& [question, first] : first_column_) {
      for (int i = 1; i < counts[question]; ++i) {
        if (solution[first + i] > solution[first + answer.answers[question]]) {
          answer.answers[question] = i;
        }
      }
    }
    if (model.isProvenOptimal()) answer.min_cost = std::numeric_limits<double>::infinity();
    return answer;
  }

 private:
  void AddAnswers(const std::vector<int>& counts, const ChoiceMerging& merging) {
    for (size_t question = 0; question < counts.size(); ++question) {
      if (!merging.IsOpen(static_cast<int>(question))) continue;
      first_column_[static_cast<int>(question)] = static_cast<int>(objective_.size());
      for (int i = 0; i < counts[question]; ++i) {
        AddEntry(num_constraints_, static_cast<int>(objective_.size()), 1);
        objective_.push_back(0);
      }
      right_side_.push_back(1);
      ++num_constraints_;
    }
    integers_ = static_cast<int>(objective_.size());
  }

  void AddTable(size_t index, const std::vector<int>& counts) {
    const ChoiceTable& table = *tables_[index];
    std::vector<int> first;  // constraint of each question's answers in this table
    for (const int question : table.questions) {
      first.push_back(num_constraints_);
      for (int i = 0; i < counts[question]; ++i) {
        AddEntry(num_constraints_++, first_column_[question] + i, -1);
        right_side_.push_back(0);
      }
    }
    for (size_t row = 0; row < table.answers.size(); ++row) {
      const int column = static_cast<int>(objective_.size());
      objective_.push_back((table.costs[row] - min_[index]) * scale_);
      for (size_t i = 0; i < first.size(); ++i) {
        AddEntry(first[i] + table.answers[row][i], column, 1);
      }
    }
  }

  void AddEntry(int constraint, int column, double value) {
    constraints_.push_back(constraint);
    columns_.push_back(column);
    values_.push_back(value);
  }

  void Load(OsiClpSolverInterface& solver) const {
    const CoinPackedMatrix matrix(/*colordered=*/true, constraints_.data(), columns_.data(),
                                  values_.data(), static_cast<CoinBigIndex>(values_.size()));
    const std::vector<double> lower(objective_.size(), 0);
    const std::vector<double> upper(objective_.size(), 1);
    solver.loadProblem(matrix, lower.data(), upper.data(), objective_.data(), right_side_.data(),
                       right_side_.data());
    for (int column = 0; column < integers_; ++column) solver.setInteger(column);
  }

  const std::vector<const ChoiceTable*> tables_;
  std::vector<double> min_;  // by table: its cheapest row
  double base_ = 0;          // all of these
  double scale_ = 1;
  std::map<int, int> first_column_;  // by open question
  int integers_ = 0;
  int num_constraints_ = 0;
  std::vector<double> objective_;   // by column
  std::vector<double> right_side_;  // by constraint
  std::vector<int> constraints_;    // by entry of the matrix
  std::vector<int> columns_;
  std::vector<double> values_;
};

// What all tables say of some answers.
double CostOf(const ChoiceProblem& problem, const std::vector<int>& answers) {
  double cost = 0;
  for (const ChoiceTable& table : problem.tables) {
    double found = std::numeric_limits<double>::infinity();
    for (size_t row = 0; row < table.answers.size(); ++row) {
      bool is_given = true;
      for (size_t i = 0; i < table.questions.size() && is_given; ++i) {
        is_given = table.answers[row][i] == answers[table.questions[i]];
      }
      if (is_given) found = std::min(found, table.costs[row]);
    }
    cost += found;
  }
  return cost;
}

}  // namespace

absl::StatusOr<ChoiceAnswer> SolveChoices(const ChoiceProblem& problem,
                                          const ChoiceLimits& limits) {
  ChoiceMerging merging(problem);
  merging.Run(limits.max_rows, limits.max_joined_rows);
  if (!merging.is_possible()) return NothingAllowed();
  if (merging.rows() > limits.max_rows) {
    return absl::ResourceExhaustedError(absl::StrCat("the integer program has ", merging.rows(),
                                                     " combinations of choices, more ", "than ",
                                                     limits.max_rows, " (ChoiceLimits::max_rows)"));
  }
  ChoiceAnswer answer;
  answer.answers.assign(problem.answers.size(), 0);
  if (!merging.tables().empty()) {
    WEFT_ASSIGN_OR_RETURN(answer,
                          Program(merging).Solve(problem.answers, merging, limits.max_nodes));
  } else {
    answer.min_cost = std::numeric_limits<double>::infinity();
  }
  answer.rows = merging.rows();
  answer.min_cost += merging.base_cost();
  if (answer.answers.empty()) return answer;
  merging.Complete(answer.answers);
  answer.cost = CostOf(problem, answer.answers);
  if (answer.cost - answer.min_cost <= kProvenGap * std::abs(answer.cost)) {
    answer.min_cost = answer.cost;
  }
  return answer;
}

}  // namespace weft
