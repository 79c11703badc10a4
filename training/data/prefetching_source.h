// PrefetchingSource: reads the rows of coming steps on threads of its own.
#ifndef WEFT_TRAINING_DATA_PREFETCHING_SOURCE_H_
#define WEFT_TRAINING_DATA_PREFETCHING_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "executor/interfaces/input_source.h"
#include "platform/mutex.h"

namespace weft {

// How far ahead rows are read, and by how many threads.
struct PrefetchOptions {
  int depth = 2;    // steps ahead
  int threads = 2;  // that read
  // Of a whole batch of all inputs, at most; for the account of memory.
  int64_t batch_bytes = 0;
};

// Expects of a step the requests that the last step of the same kind made: the same inputs,
// the same rows of the batch. What it did not expect it reads at once. So a guess that is wrong
// costs time and changes nothing. An error of a row is the error of the Fill that asks for it. Fill
// is called by one thread; the destructor waits for the reads under way.
class PrefetchingSource final : public InputSource {
 public:
  // What steps that make the same requests have in common: the samples of the global batch, and
  // the length that they are padded to (0 where it is always the same).
  using Kind = std::pair<int64_t, int64_t>;

  // `rows` may be asked by any thread. `kind_of`: of a step.
  PrefetchingSource(std::unique_ptr<InputSource> rows, std::function<Kind(int64_t)> kind_of,
                    const PrefetchOptions& options);
  ~PrefetchingSource() override;

  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override;
  int64_t held_bytes() const override;
  int64_t max_bytes() const override;

 private:
  struct Request {
    FeedInput input;
    int64_t first = 0;
    int64_t count = 0;
  };
  // A request of a step, and what was read for it. `state` is guarded by the mutex; while it is
  // kReading, the rest belongs to the thread that reads.
  struct Block {
    int64_t step = 0;
    Request request;
    enum class State { kWaiting, kReading, kRead } state = State::kWaiting;
    std::vector<std::byte> bytes;
    absl::Status status;
  };
  using BlockPointer = std::shared_ptr<Block>;

  static bool IsSame(const Request& a, const Request& b);
  // Learns from the step before `step`, forgets blocks that nobody will ask for, and queues those
  // of the steps after it.
  void BeginStep(int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the block out; null when it was not expected or its reading has not begun.
  BlockPointer Take(int64_t step, const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for a block to read; null at the end.
  BlockPointer NextToRead();
  void ReadBlocks();

  const std::unique_ptr<InputSource> rows_;
  const std::function<Kind(int64_t)> kind_of_;
  const PrefetchOptions options_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t step_ ABSL_GUARDED_BY(mutex_) = -1;           // under way
  int64_t queued_until_ ABSL_GUARDED_BY(mutex_) = 0;    // the first step without blocks
  std::vector<Request> asked_ ABSL_GUARDED_BY(mutex_);  // in this step
  std::map<Kind, std::vector<Request>> expected_ ABSL_GUARDED_BY(mutex_);
  std::deque<BlockPointer> blocks_ ABSL_GUARDED_BY(mutex_);            // in order of use
  std::vector<std::vector<std::byte>> spare_ ABSL_GUARDED_BY(mutex_);  // memory to use again
  std::vector<std::thread> threads_;
};

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_PREFETCHING_SOURCE_H_
