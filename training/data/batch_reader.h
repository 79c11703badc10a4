// BatchReader: rows of a data set, ready for the graph.
#ifndef WEFT_TRAINING_DATA_BATCH_READER_H_
#define WEFT_TRAINING_DATA_BATCH_READER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "executor/interfaces/input_source.h"
#include "platform/mutex.h"
#include "training/data/data_set.h"

namespace weft {

// Finds the samples of a step in the order of its epoch, reads, converts and transforms them. A row
// is a function of the data set's spec, the epoch and the sample. Any thread may call Fill, for any
// step.
class BatchReader final : public InputSource {
 public:
  // `orders`: of so many epochs, the order is kept at a time.
  BatchReader(std::shared_ptr<const DataSet> data, int orders);

  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override;
  int64_t held_bytes() const override;
  int64_t max_bytes() const override;

 private:
  using Order = std::shared_ptr<const std::vector<int64_t>>;

  // Null: the data set's own.
  Order OrderOf(int64_t epoch);

  const std::shared_ptr<const DataSet> data_;
  const size_t max_orders_;
  mutable Mutex mutex_;
  std::map<int64_t, Order> orders_ ABSL_GUARDED_BY(mutex_);  // by epoch
};

// Rows of the data set, read ahead if the spec says so. One thread uses it.
std::unique_ptr<InputSource> NewDataSetSource(std::shared_ptr<const DataSet> data);

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_BATCH_READER_H_
