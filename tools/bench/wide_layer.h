// A layer of many weights and few samples, for benchmarks: its state is large for its work.
#ifndef WEFT_TOOLS_BENCH_WIDE_LAYER_H_
#define WEFT_TOOLS_BENCH_WIDE_LAYER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "training/data/data_set.h"

namespace weft {

// Of the inputs of a WideLayer.
inline constexpr int64_t kWideFeatures = 2048;

// scores [N,columns] = x [N,2048] times w, which is zero: 8 KiB of float32 for each column.
absl::StatusOr<Graph> WideLayer(int64_t columns);
// Made-up samples for it in batches of 16, written to the folder.
absl::StatusOr<std::shared_ptr<const DataSet>> MakeWideData(const std::string& folder,
                                                            int64_t columns);

}  // namespace weft

#endif  // WEFT_TOOLS_BENCH_WIDE_LAYER_H_
