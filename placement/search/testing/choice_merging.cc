#include "placement/search/testing/choice_merging.h"

#include <algorithm>
#include <limits>

namespace weft {
namespace {

// The answers of a row to some of its questions.
std::vector<int> Pick(const std::vector<int>& row, const std::vector<size_t>& places) {
  std::vector<int> picked;
  picked.reserve(places.size());
  for (const size_t place : places) picked.push_back(row[place]);
  return picked;
}

// All pairs of rows that agree.
ChoiceTable Join(const ChoiceTable& first, const ChoiceTable& second) {
  ChoiceTable joined;
  joined.questions = first.questions;
  std::vector<size_t> shared_first;
  std::vector<size_t> shared_second;
  std::vector<size_t> more;
  for (size_t i = 0; i < second.questions.size(); ++i) {
    const auto found =
        std::find(first.questions.begin(), first.questions.end(), second.questions[i]);
    if (found == first.questions.end()) {
      joined.questions.push_back(second.questions[i]);
      more.push_back(i);
    } else {
      shared_first.push_back(static_cast<size_t>(found - first.questions.begin()));
      shared_second.push_back(i);
    }
  }
  std::map<std::vector<int>, std::vector<size_t>> rows;
  for (size_t row = 0; row < second.answers.size(); ++row) {
    rows[Pick(second.answers[row], shared_second)].push_back(row);
  }
  for (size_t row = 0; row < first.answers.size(); ++row) {
    const auto found = rows.find(Pick(first.answers[row], shared_first));
    if (found == rows.end()) continue;
    for (const size_t other : found->second) {
      joined.answers.push_back(first.answers[row]);
      for (const size_t i : more) joined.answers.back().push_back(second.answers[other][i]);
      joined.costs.push_back(first.costs[row] + second.costs[other]);
    }
  }
  return joined;
}

}  // namespace

ChoiceMerging::ChoiceMerging(ChoiceProblem problem)
    : answers_(std::move(problem.answers)), tables_of_(answers_.size()) {
  for (ChoiceTable& table : problem.tables) Add(std::move(table));
}

void ChoiceMerging::Add(ChoiceTable table) {
  is_possible_ &= !table.answers.empty();
  if (table.questions.empty()) {
    for (const double cost : table.costs) base_cost_ += cost;
    return;
  }
  for (const int question : table.questions) {
    tables_of_[question].insert(static_cast<int>(tables_.size()));
  }
  rows_ += static_cast<int64_t>(table.answers.size());
  tables_.push_back(std::move(table));
}

void ChoiceMerging::Remove(int table) {
  rows_ -= static_cast<int64_t>(tables_[table].answers.size());
  for (const int question : tables_[table].questions) tables_of_[question].erase(table);
  tables_[table] = {};
}

double ChoiceMerging::JoinedRows(int question) const {
  std::set<int> questions;
  for (const int table : tables_of_[question]) {
    questions.insert(tables_[table].questions.begin(), tables_[table].questions.end());
  }
  double rows = 1;
  for (const int other : questions) rows *= answers_[other];
  return rows;
}

double ChoiceMerging::Growth(int question) const {
  double replaced = 0;
  for (const int table : tables_of_[question]) {
    replaced += static_cast<double>(tables_[table].answers.size());
  }
  return JoinedRows(question) / answers_[question] - replaced;
}

void ChoiceMerging::Merge(int question) {
  const std::vector<int> from(tables_of_[question].begin(), tables_of_[question].end());
  ChoiceTable joined = tables_[from.front()];
  Remove(from.front());
  for (size_t i = 1; i < from.size(); ++i) {
    joined = Join(joined, tables_[from[i]]);
    Remove(from[i]);
  }
  const auto place =
      static_cast<size_t>(std::find(joined.questions.begin(), joined.questions.end(), question) -
                          joined.questions.begin());
  std::map<std::vector<int>, std::pair<double, int>> best;
  for (size_t row = 0; row < joined.answers.size(); ++row) {
    std::vector<int> others = joined.answers[row];
    const int own = others[place];
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(place));
    const std::pair<double, int> found = {joined.costs[row], own};
    const auto [known, is_new] = best.try_emplace(std::move(others), found);
    if (!is_new && found < known->second) known->second = found;
  }
  Merged merged;
  merged.question = question;
  merged.questions = std::move(joined.questions);
  merged.questions.erase(merged.questions.begin() + static_cast<std::ptrdiff_t>(place));
  ChoiceTable rest;
  rest.questions = merged.questions;
  for (const auto& [others, found] : best) {
    rest.answers.push_back(others);
    rest.costs.push_back(found.first);
    merged.best[others] = found.second;
  }
  merged_.push_back(std::move(merged));
  Add(std::move(rest));
}

void ChoiceMerging::Run(int64_t max_rows, int64_t max_joined_rows) {
  std::set<std::pair<double, int>> open;
  std::vector<double> growth(answers_.size());
  const auto look_at = [&](int question) {
    open.erase({growth[question], question});
    if (tables_of_[question].empty()) return;
    const bool is_alone = tables_of_[question].size() == 1;
    growth[question] = is_alone ? -std::numeric_limits<double>::infinity() : Growth(question);
    const bool fits = JoinedRows(question) <= static_cast<double>(max_joined_rows);
    if (is_alone || fits) open.insert({growth[question], question});
  };
  for (size_t i = 0; i < answers_.size(); ++i) look_at(static_cast<int>(i));
  while (!open.empty() && is_possible_) {
    const auto [min_growth, question] = *open.begin();
    const bool is_alone = tables_of_[question].size() == 1;
    if (!is_alone && rows_ <= max_rows) break;
    std::set<int> neighbours;
    for (const int table : tables_of_[question]) {
      neighbours.insert(tables_[table].questions.begin(), tables_[table].questions.end());
    }
    Merge(question);
    for (const int neighbour : neighbours) look_at(neighbour);
  }
}

std::vector<const ChoiceTable*> ChoiceMerging::tables() const {
  std::vector<const ChoiceTable*> rest;
  for (const ChoiceTable& table : tables_) {
    if (!table.questions.empty()) rest.push_back(&table);
  }
  return rest;
}

void ChoiceMerging::Complete(std::vector<int>& answers) const {
  for (auto merged = merged_.rbegin(); merged != merged_.rend(); ++merged) {
    std::vector<int> others;
    for (const int question : merged->questions) others.push_back(answers[question]);
    answers[merged->question] = merged->best.at(others);
  }
}

}  // namespace weft
