// LeNet and data for it, for benchmarks.
#ifndef WEFT_TOOLS_BENCH_LENET_H_
#define WEFT_TOOLS_BENCH_LENET_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "training/data/data_set.h"

namespace weft {

inline constexpr int64_t kLenetBatch = 128;

// The example LeNet, all of its weights trainable.
absl::StatusOr<Graph> LenetModel();
// Made-up images and labels, 20 batches of them, written to the folder.
absl::StatusOr<std::shared_ptr<const DataSet>> MakeLenetData(const std::string& folder);

}  // namespace weft

#endif  // WEFT_TOOLS_BENCH_LENET_H_
