#include "tools/bench/gpt_block.h"

#include <utility>
#include <vector>

#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "training/data/data_file.h"

namespace weft {

std::map<std::string, AxisSharding> MegatronShardings() {
  return {{"*.qkv.weight", AxisSharding::Split(1, 3)},
          {"*.up.weight", AxisSharding::Split(1)},
          {"*.out.weight", AxisSharding::Split(0)},
          {"*.down.weight", AxisSharding::Split(0)}};
}

absl::StatusOr<std::shared_ptr<const DataSet>> MakeGptData(const GptBlocks& shape, int64_t samples,
                                                           int64_t batch,
                                                           const std::string& folder) {
  std::vector<uint8_t> labels(static_cast<size_t>(samples));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<uint8_t>(i % 10);
  WEFT_ASSIGN_OR_RETURN(std::string x,
                        ToNpy(SpreadValues({samples, shape.tokens, shape.width}, 1)));
  WEFT_ASSIGN_OR_RETURN(std::string y, ToNpy(Tensor::Of<uint8_t>(Shape{samples}, labels)));
  WEFT_RETURN_IF_ERROR(RealFileSystem().WriteFileAtomically(folder + "/x.npy", x));
  WEFT_RETURN_IF_ERROR(RealFileSystem().WriteFileAtomically(folder + "/y.npy", y));
  DataSpec spec;
  spec.files = {{"x", folder + "/x.npy", 0}, {"labels", folder + "/y.npy", 0}};
  spec.batch = batch;
  return DataSet::Open(RealFileSystem(), spec);
}

}  // namespace weft
