// What benchmarks of transformer blocks need besides their graphs: the split of Megatron, and data.
#ifndef WEFT_TOOLS_BENCH_GPT_BLOCK_H_
#define WEFT_TOOLS_BENCH_GPT_BLOCK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "graph/sharding.h"
#include "tools/models/gpt_model.h"
#include "training/data/data_set.h"

namespace weft {

// The split of Megatron (Shoeybi et al. 2019): qkv and up by columns, out and down by rows.
std::map<std::string, AxisSharding> MegatronShardings();
// Made-up samples and labels, written to the folder.
absl::StatusOr<std::shared_ptr<const DataSet>> MakeGptData(const GptBlocks& shape, int64_t samples,
                                                           int64_t batch,
                                                           const std::string& folder);

}  // namespace weft

#endif  // WEFT_TOOLS_BENCH_GPT_BLOCK_H_
