// Runs collective schedules on numbers, for tests.
#ifndef WEFT_GRAPH_SCHEDULE_TESTING_NUMERIC_EXECUTOR_H_
#define WEFT_GRAPH_SCHEDULE_TESTING_NUMERIC_EXECUTOR_H_

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "graph/schedule/collective_schedule.h"
#include "gtest/gtest.h"

namespace weft::testing {

// Runs schedules on numbers: the truth that the runtime is also compared with.
template <typename T>
class NumericExecutor {
 public:
  // `data` lies in buffer `data_buffer` of each member.
  NumericExecutor(std::vector<CollectiveSchedule> schedules, std::vector<std::vector<T>> data,
                  int data_buffer = 0)
      : schedules_(std::move(schedules)) {
    for (size_t m = 0; m < schedules_.size(); ++m) {
      std::vector<std::vector<T>> buffers;
      for (int64_t elements : schedules_[m].buffer_elements) {
        buffers.emplace_back(elements, static_cast<T>(-77));
      }
      std::vector<T>& filled = buffers[static_cast<size_t>(data_buffer)];
      EXPECT_LE(data[m].size(), filled.size());
      std::copy(data[m].begin(), data[m].end(), filled.begin());
      buffers_.push_back(std::move(buffers));
    }
  }

  // Buffer 0 of every member afterwards.
  std::vector<std::vector<T>> Run() {
    std::vector<size_t> next(schedules_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t m = 0; m < schedules_.size(); ++m) {
        while (next[m] < schedules_[m].steps.size() && Step(m, schedules_[m].steps[next[m]])) {
          ++next[m];
          moved = true;
        }
      }
    }
    std::vector<std::vector<T>> results;
    for (const auto& buffers : buffers_) results.push_back(buffers[0]);
    return results;
  }

 private:
  T* At(size_t member, const BufferRange& range) {
    return buffers_[member][range.buffer].data() + range.first;
  }

  bool Step(size_t m, const CollectiveStep& step) {
    using Kind = CollectiveStep::Kind;
    switch (step.kind) {
      case Kind::kSend: {
        const T* from = At(m, step.source);
        messages_[{m, step.peer}].emplace_back(from, from + step.source.count);
        return true;
      }
      case Kind::kReceive: {
        auto& queue = messages_[{static_cast<size_t>(step.peer), static_cast<int>(m)}];
        if (queue.empty()) return false;
        std::copy(queue.front().begin(), queue.front().end(), At(m, step.target));
        queue.pop_front();
        return true;
      }
      case Kind::kReduce:
        for (int64_t i = 0; i < step.source.count; ++i) {
          At(m, step.target)[i] += At(m, step.source)[i];
        }
        return true;
      case Kind::kCopy:
        std::copy_n(At(m, step.source), step.source.count, At(m, step.target));
        return true;
    }
    return false;
  }

  std::vector<CollectiveSchedule> schedules_;
  std::vector<std::vector<std::vector<T>>> buffers_;
  std::map<std::pair<size_t, int>, std::deque<std::vector<T>>> messages_;
};

inline const std::vector<int64_t> kSizes = {0, 1, 2, 3, 5, 7, 8, 13, 64, 97, 1000};

inline std::vector<std::vector<int64_t>> RandomIntegers(int members, int64_t elements,
                                                        unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<int64_t>> data(members);
  for (auto& own : data) {
    for (int64_t i = 0; i < elements; ++i) own.push_back(static_cast<int64_t>(random() % 1000));
  }
  return data;
}

inline std::vector<int64_t> SumOf(const std::vector<std::vector<int64_t>>& data) {
  std::vector<int64_t> sum(data[0].size(), 0);
  for (const auto& own : data) {
    for (size_t i = 0; i < own.size(); ++i) sum[i] += own[i];
  }
  return sum;
}

}  // namespace weft::testing

#endif  // WEFT_GRAPH_SCHEDULE_TESTING_NUMERIC_EXECUTOR_H_
