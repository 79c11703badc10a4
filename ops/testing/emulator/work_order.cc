#include "ops/testing/emulator/work_order.h"

#include <algorithm>
#include <utility>

namespace weft::testing {
namespace {

// True if `into` changed.
bool JoinClock(WorkClock& into, const WorkClock& from) {
  bool changed = false;
  for (const auto& [stream, number] : from) {
    uint64_t& own = into[stream];
    changed |= own < number;
    own = std::max(own, number);
  }
  return changed;
}

}  // namespace

void WorkPast::SeenByHost() const { WorkOrder::Global().JoinHost(clock_); }

WorkOrder& WorkOrder::Global() {
  static WorkOrder* const order = new WorkOrder;
  return *order;
}

uint32_t WorkOrder::AddStream() {
  MutexLock lock(mutex_);
  clocks_.try_emplace(++streams_);
  return streams_;
}

void WorkOrder::RemoveStream(uint32_t stream) {
  MutexLock lock(mutex_);
  const auto removed = clocks_.find(stream);
  WorkClock host = host_->clock();
  JoinClock(host, removed->second);
  clocks_.erase(removed);
  // Without streams, nothing runs that could come before what is enqueued from here on.
  if (clocks_.empty()) {
    host.clear();
    forgotten_ = streams_;
  }
  host_ = std::make_shared<const WorkPast>(std::move(host));
}

uint64_t WorkOrder::Begin(uint32_t stream) {
  MutexLock lock(mutex_);
  return ++clocks_[stream][stream];
}

bool WorkOrder::IsBefore(uint32_t earlier, uint64_t number, uint32_t stream) {
  MutexLock lock(mutex_);
  if (earlier == stream || earlier <= forgotten_) return true;
  const WorkClock& clock = clocks_[stream];
  const auto seen = clock.find(earlier);
  return seen != clock.end() && seen->second >= number;
}

std::shared_ptr<const WorkPast> WorkOrder::PastOf(uint32_t stream) {
  MutexLock lock(mutex_);
  return std::make_shared<const WorkPast>(clocks_[stream]);
}

std::shared_ptr<const WorkPast> WorkOrder::PastOfHost() {
  MutexLock lock(mutex_);
  return host_;
}

void WorkOrder::Join(uint32_t stream, const WorkClock& clock) {
  MutexLock lock(mutex_);
  JoinClock(clocks_[stream], clock);
}

void WorkOrder::JoinHost(const WorkClock& clock) {
  MutexLock lock(mutex_);
  WorkClock host = host_->clock();
  if (JoinClock(host, clock)) host_ = std::make_shared<const WorkPast>(std::move(host));
}

}  // namespace weft::testing
