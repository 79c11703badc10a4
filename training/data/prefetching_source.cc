#include "training/data/prefetching_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft {

PrefetchingSource::PrefetchingSource(std::unique_ptr<InputSource> rows,
                                     std::function<Kind(int64_t)> kind_of,
                                     const PrefetchOptions& options)
    : rows_(std::move(rows)), kind_of_(std::move(kind_of)), options_(options) {
  for (int i = 0; i < std::max(1, options_.threads); ++i) {
    threads_.emplace_back([this] { ReadBlocks(); });
  }
}

PrefetchingSource::~PrefetchingSource() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool PrefetchingSource::IsSame(const Request& a, const Request& b) {
  return a.first == b.first && a.count == b.count && a.input.name == b.input.name &&
         a.input.dtype == b.input.dtype && a.input.sample_shape == b.input.sample_shape;
}

void PrefetchingSource::BeginStep(int64_t step) {
  if (step_ >= 0) expected_[kind_of_(step_)] = std::move(asked_);
  asked_.clear();
  step_ = step;
  while (!blocks_.empty() && blocks_.front()->step < step) blocks_.pop_front();
  const int64_t end = step + 1 + options_.depth;
  // After a jump back, or far ahead.
  if (queued_until_ > end || queued_until_ <= step) {
    blocks_.clear();
    queued_until_ = step + 1;
  }
  for (; queued_until_ < end; ++queued_until_) {
    const auto expected = expected_.find(kind_of_(queued_until_));
    if (expected == expected_.end()) break;  // once such a step was seen
    for (const Request& request : expected->second) {
      auto block = std::make_shared<Block>();
      block->step = queued_until_;
      block->request = request;
      if (!spare_.empty()) {
        block->bytes = std::move(spare_.back());
        spare_.pop_back();
      }
      blocks_.push_back(std::move(block));
    }
  }
  changed_.NotifyAll();
}

PrefetchingSource::BlockPointer PrefetchingSource::Take(int64_t step, const Request& request) {
  const auto found = std::find_if(blocks_.begin(), blocks_.end(), [&](const BlockPointer& block) {
    return block->step == step && IsSame(block->request, request);
  });
  if (found == blocks_.end()) return nullptr;
  const BlockPointer block = *found;
  blocks_.erase(found);
  if (block->state == Block::State::kWaiting) {
    spare_.push_back(std::move(block->bytes));
    return nullptr;
  }
  return block;
}

absl::Status PrefetchingSource::Fill(int64_t step, const FeedInput& input, int64_t first,
                                     int64_t count, void* target) {
  const Request request{input, first, count};
  BlockPointer block;
  {
    MutexLock lock(mutex_);
    if (step != step_) BeginStep(step);
    asked_.push_back(request);
    block = Take(step, request);
    while (block != nullptr && block->state != Block::State::kRead) changed_.Wait(mutex_);
  }
  if (block == nullptr) return rows_->Fill(step, input, first, count, target);
  // Nobody else knows of it any more.
  if (block->status.ok()) std::memcpy(target, block->bytes.data(), block->bytes.size());
  MutexLock lock(mutex_);
  spare_.push_back(std::move(block->bytes));
  return block->status;
}

PrefetchingSource::BlockPointer PrefetchingSource::NextToRead() {
  MutexLock lock(mutex_);
  while (!ends_) {
    const auto next = std::find_if(blocks_.begin(), blocks_.end(), [](const BlockPointer& block) {
      return block->state == Block::State::kWaiting;
    });
    if (next != blocks_.end()) {
      (*next)->state = Block::State::kReading;
      return *next;
    }
    changed_.Wait(mutex_);
  }
  return nullptr;
}

void PrefetchingSource::ReadBlocks() {
  while (const BlockPointer block = NextToRead()) {
    const Request& request = block->request;
    const int64_t sample =
        DTypeBytes(request.input.dtype, request.input.sample_shape.num_elements());
    block->bytes.resize(static_cast<size_t>(request.count * sample));
    block->status =
        rows_->Fill(block->step, request.input, request.first, request.count, block->bytes.data());
    MutexLock lock(mutex_);
    block->state = Block::State::kRead;
    changed_.NotifyAll();
  }
}

int64_t PrefetchingSource::held_bytes() const {
  MutexLock lock(mutex_);
  int64_t bytes = rows_->held_bytes();
  for (const BlockPointer& block : blocks_) {
    if (block->state == Block::State::kRead) bytes += static_cast<int64_t>(block->bytes.capacity());
  }
  for (const std::vector<std::byte>& spare : spare_)
    bytes += static_cast<int64_t>(spare.capacity());
  return bytes;
}

int64_t PrefetchingSource::max_bytes() const {
  return rows_->max_bytes() + (options_.depth + 1) * options_.batch_bytes;
}

}  // namespace weft
