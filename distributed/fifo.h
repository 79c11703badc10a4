// A queue that keeps its memory: once it has been as long as it will get, it allocates nothing.
#ifndef WEFT_DISTRIBUTED_FIFO_H_
#define WEFT_DISTRIBUTED_FIFO_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace weft {

// A ring over a vector. T is default-constructible and movable. Not thread-safe.
template <typename T>
class Fifo {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // REQUIRES: !empty().
  T& front() { return slots_[first_]; }
  // The i-th oldest. REQUIRES: i < size().
  T& operator[](size_t i) { return slots_[(first_ + i) % slots_.size()]; }

  void Push(T value) {
    if (size_ == slots_.size()) Grow();
    slots_[(first_ + size_) % slots_.size()] = std::move(value);
    ++size_;
  }
  // REQUIRES: !empty().
  T Pop() {
    T value = std::move(slots_[first_]);
    slots_[first_] = T();
    first_ = (first_ + 1) % slots_.size();
    --size_;
    return value;
  }

 private:
  void Grow() {
    std::vector<T> slots(slots_.empty() ? 4 : 2 * slots_.size());
    for (size_t i = 0; i < size_; ++i) slots[i] = std::move((*this)[i]);
    slots_ = std::move(slots);
    first_ = 0;
  }

  std::vector<T> slots_;
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_FIFO_H_
